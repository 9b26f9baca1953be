// The portable matmul for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#define FERMATA_MICRO_ROWS 14
#include "codegen_cpu/library/matmul_portable_body.h"

namespace fermata {

#ifdef FERMATA_INFERENCE_ONLY
namespace {

constexpr PortableKernels with_integers_of_avx2(PortableKernels made) {
  constexpr auto kAt = static_cast<std::size_t>(MatmulStorage::u32);
  made.pack_rhs[kAt] = [](const PortableRhs& rhs) { kPortableAvx2.pack_rhs[kAt](rhs); };
  made.tile[kAt] = [](const PortableTile& tile) { kPortableAvx2.tile[kAt](tile); };
  made.vector_product[kAt] = [](const PortableVectorProduct& v) { kPortableAvx2.vector_product[kAt](v); };
  made.panel_columns[kAt] /= 2;
  return made;
}

}  // namespace

constinit const PortableKernels kPortableAvx512 = with_integers_of_avx2(kernels_of_this_file());
#else
constinit const PortableKernels kPortableAvx512 = kernels_of_this_file();
#endif

}  // namespace fermata
