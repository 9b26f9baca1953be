// See matmul_bytes.h: what the VNNI kernel of matmul_packed shares out between threads.
#include "codegen_cpu/library/matmul_packed_vnni.h"

#include <algorithm>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul_bytes.h"
#include "dispatch/kernel_files.h"
#include "ir/error.h"
#include "ir/ops/products.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {

bool has_vnni() {
#if defined(__x86_64__)
  return eager::instruction_set() == "avx512" && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool matmul_packed_vnni_fits(const CallArgs& args) { return args.inputs[0].dtype == DType::u8; }

#if defined(__x86_64__)
namespace {

/// Rows of x that meet a block before the next one does: with K of some thousand they stay in a second-level cache.
constexpr std::int64_t kRows = 192;

/// The bytes of a view in row-major order: where they are, or a copy.
const void* dense_bytes(const TensorView& x, const Scratch<std::byte>& copy) {
  if (copy.size() == 0) return x.data;
  const std::span<const std::int64_t> sizes{x.sizes, x.rank};
  strided_copy({copy.data(), dense_strides(sizes)}, {x.data, {x.strides, x.rank}}, sizes, 1);
  return copy.data();
}
std::int64_t copied_bytes(const TensorView& x) { return is_contiguous(x, 0, x.rank) ? 0 : x.element_count(); }

}  // namespace

void matmul_packed_vnni(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &blocks = args.inputs[1], &out = args.outputs[0];
  const Scratch<std::byte> x_copy(copied_bytes(x)), block_copy(copied_bytes(blocks));
  const auto* const rows_of_x = static_cast<const std::uint8_t*>(dense_bytes(x, x_copy));
  const auto* const packed = static_cast<const std::int8_t*>(dense_bytes(blocks, block_copy));
  const std::int64_t columns = attributes_of<ops::MatmulPacked>(args).columns.value;
  const std::int64_t k = x.sizes[x.rank - 1], block_bytes = blocks.sizes[1] * 256;
  if (columns == 0) return;
  const std::int64_t rows = out.element_count() / columns, parts = (rows + kRows - 1) / kRows;
  const double ns = 50 + static_cast<double>(std::min(rows, kRows)) * static_cast<double>(k) * 64 / 150;
  parallel_for(0, blocks.sizes[0] * parts, ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t block = task / parts, first = task % parts * kRows;
      packed_tile_vnni({rows_of_x + first * k, k, packed + block * block_bytes,
                        static_cast<std::int32_t*>(out.data) + first * columns + block * 64, columns,
                        std::min(kRows, rows - first), std::min<std::int64_t>(64, columns - block * 64)});
    }
  });
}
#else
void matmul_packed_vnni(const CallArgs&) { throw_internal("matmul_packed_vnni: not on this processor"); }
#endif

FERMATA_KERNELS(cpu) {
  if (!has_vnni()) return;
  constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul_packed, BackendKey::cpu,
              {.name = "vnni",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_packed_vnni,
               .fits = &matmul_packed_vnni_fits,
               .fits_text = kMatmulPackedVnniFits});
}

}  // namespace fermata
