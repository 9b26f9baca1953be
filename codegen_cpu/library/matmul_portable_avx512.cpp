// The portable matmul for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#define FERMATA_MICRO_ROWS 14
#include "codegen_cpu/library/matmul_portable_body.h"

namespace fermata {

#ifndef FERMATA_INFERENCE_ONLY
constinit const PortableKernels kPortableAvx512 = kernels_of_this_file();
#else
// Programs that are shipped (frontend/run/CMakeLists.txt): integers go to the tiles of AVX2. Tiles for AVX-512 would
// add 0.1 MB for products that few programs have; those of bytes have kernels of their own (matmul_packed_vnni.cpp).
namespace {

template <MatmulStorage kStorage> struct OfAvx2 {
  static constexpr auto kAt = static_cast<std::size_t>(kStorage);
  static void pack(const PortableRhs& rhs) { kPortableAvx2.pack_rhs[kAt](rhs); }
  static void tile(const PortableTile& t) { kPortableAvx2.tile[kAt](t); }
  static void vector_product(const PortableVectorProduct& v) { kPortableAvx2.vector_product[kAt](v); }
  static constexpr std::int64_t kColumns = kPanel<typename Storage<kStorage>::Sum> / 2;
};
template <MatmulStorage kStorage> struct OfThisFile {
  static constexpr auto pack = &pack_rhs<kStorage>;
  static constexpr auto tile = &multiply_tile<kStorage>;
  static constexpr auto vector_product = &multiply_vector<kStorage>;
  static constexpr std::int64_t kColumns = kPanel<typename Storage<kStorage>::Sum>;
};
template <class... Kernels> constexpr PortableKernels table_of() {
  return {{Kernels::pack...},     {Kernels::tile...},   {Kernels::vector_product...},
          {Kernels::kColumns...}, FERMATA_VECTOR_BYTES, kFewRows};
}

}  // namespace

constinit const PortableKernels kPortableAvx512 =
    table_of<OfAvx2<MatmulStorage::u8>, OfAvx2<MatmulStorage::u16>, OfAvx2<MatmulStorage::u32>,
             OfAvx2<MatmulStorage::u64>, OfThisFile<MatmulStorage::f16>, OfThisFile<MatmulStorage::bf16>,
             OfThisFile<MatmulStorage::f32>, OfThisFile<MatmulStorage::f64>>();
#endif

}  // namespace fermata
