// matmul through oneDNN, one primitive execution per tile; see onednn_product.h.
#include "codegen_cpu/library/matmul.h"

#include "dispatch/kernel_files.h"

#if FERMATA_ONEDNN

#include <algorithm>

#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/onednn_product.h"
#include "codegen_cpu/library/product_rates.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using namespace onednn;

/// i8 is multiplied into i32, of which the low byte is the wrapped product.
void run_bytes(Key key, const std::byte* lhs, const std::byte* rhs, std::byte* out) {
  const std::int64_t rows = key.numbers[0], columns = key.numbers[1], out_row = key.numbers[7];
  key.numbers[7] = columns;
  const Scratch<std::uint32_t> sums(rows * columns);
  product_for(key).run(lhs, rhs, sums.data());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) out[i * out_row + j] = static_cast<std::byte>(sums[i * columns + j]);
}

void multiply(const MatmulProblem& p, TileEpilogue epilogue) {
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype)),
             out_bytes = static_cast<std::int64_t>(byte_size(p.result));
  const MatmulTiles tiles = tile_matmul(p, 64e3 * per_ns(p.dtype), 64, 512, 512);
  const double ns = 500 + static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / per_ns(p.dtype);
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t first, std::int64_t last) {
    const SingleThreadedOpenMp single;
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      const std::int64_t rows = std::min(tiles.rows, p.m - i), columns = std::min(tiles.columns, p.n - j);
      const SideStrides l = strides_of(p.lhs, rows, p.k), r = strides_of(p.rhs, p.k, columns);
      const DType sums = p.dtype == DType::i8 ? DType::i32 : p.result;
      const Key key{p.dtype, p.dtype, sums, {rows, columns, p.k, l.row, l.column, r.row, r.column, p.n}};
      const std::byte* const lhs = p.lhs_of(batch) + i * p.lhs.row_stride * bytes;
      const std::byte* const rhs = p.rhs_of(batch) + j * p.rhs.column_stride * bytes;
      std::byte* const out = p.out_of(batch) + (i * p.n + j) * out_bytes;
      if (p.dtype == DType::i8)
        run_bytes(key, lhs, rhs, out);
      else
        product_for(key).run(lhs, rhs, out);
      epilogue({batch * p.m + i, batch * p.m + i + rows, j, j + columns});
    }
  });
}

bool can_multiply(DType t) {
  // Without VNNI products of bytes are added in pairs that saturate; without AVX-512 there is no bf16.
  return t == DType::f32 || (t == DType::bf16 && has_isa(dnnl::cpu_isa::avx512_core)) ||
         (t == DType::i8 && has_isa(dnnl::cpu_isa::avx512_core_vnni));
}

}  // namespace

bool has_onednn() { return true; }

void matmul_onednn(const CallArgs& args, TileEpilogue epilogue) try {
  if (split_calls(args, kReadInPlace, [&](const CallArgs& one) { matmul_onednn(one, epilogue); })) return;
  MatmulProblem p = decode_matmul(args);
  const PackedOperands packed(p);
  multiply(p, epilogue);
} catch (const dnnl::error& e) { throw_error(e); }

bool matmul_onednn_fits(const CallArgs& args) {
  if (!can_multiply(args.inputs[0].dtype)) return false;
  const MatmulProblem p = decode_matmul(args);
  return p.batches * p.m * p.n != 0 && p.k != 0;
}

double matmul_onednn_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  // Kernels are built for blocks of 16 columns and a few rows.
  const double rows = static_cast<double>(std::max<std::int64_t>(p.m, 4)),
               columns = static_cast<double>((p.n + 15) / 16 * 16);
  const double padded = static_cast<double>(p.batches) * rows * columns * static_cast<double>(p.k);
  // What does not fit in a second-level cache is slower.
  const bool is_far = p.bytes() > (4 << 20);
  const ProductRates& rates = product_rates();
  const double far = !is_far                  ? 1
                     : p.dtype == DType::f32  ? rates.onednn_far
                     : p.dtype == DType::bf16 ? rates.onednn_bf16_far
                                              : 1;
  const double packing =
      is_far && p.dtype == DType::f32 ? static_cast<double>(p.batches * p.k * p.n) * rates.onednn_packing : 0;
  // It reads rows where they lie, and those that are a power of two apart share sets of the caches.
  const bool are_apart = p.dtype == DType::f32 && p.rhs.column_stride == 1 && p.rhs.row_stride % 512 == 0;
  const double work = padded / per_ns(p.dtype) * far * (are_apart ? 1.25 : 1);
  return rates.onednn_call * static_cast<double>(p.batches) + packing + std::max(work, p.bytes() * 0.09);
}

}  // namespace fermata

#else

#include "ir/error.h"

namespace fermata {

bool has_onednn() { return false; }
void matmul_onednn(const CallArgs&, TileEpilogue) { throw_internal("matmul_onednn: built without oneDNN"); }
bool matmul_onednn_fits(const CallArgs&) { return false; }
double matmul_onednn_cost(const CallArgs&) { return 0; }

}  // namespace fermata

#endif

namespace fermata {
void matmul_onednn(const CallArgs& args) { matmul_onednn(args, tile_epilogue_of(args)); }
}  // namespace fermata

namespace fermata {
FERMATA_KERNELS(cpu) {
  if (!has_onednn()) return;
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "onednn",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::bf16 | DType::i8,
               .call = &matmul_onednn,
               .fits = &matmul_onednn_fits,
               .cost = &matmul_onednn_cost,
               .fits_text = kMatmulOnednnFits,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true});
  add_variant(Op::matmul_f32, BackendKey::cpu,
              {.name = "onednn",
               .form = KernelForm::library,
               .dtypes = DType::bf16,
               .call = &matmul_onednn,
               .fits = &matmul_onednn_fits,
               .cost = &matmul_onednn_cost,
               .fits_text = "bf16, and no empty axis",
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true});
}
}  // namespace fermata
