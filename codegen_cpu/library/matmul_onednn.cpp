// matmul through oneDNN, one primitive execution per tile; see onednn_product.h.
#include "codegen_cpu/library/matmul.h"

#include "codegen_cpu/library/matmul_problem.h"
#include "dispatch/kernel_files.h"

#if FERMATA_ONEDNN

#include <algorithm>

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
  if (has_ended()) [[unlikely]]
    return matmul_portable(args, epilogue);
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

namespace {

/// Pairs of bf16: with tiles, edges and right sides that have to be brought into pairs take as long as the product.
double cost_of_pairs(const MatmulProblem& p) {
  constexpr double kFarOfTiles = 1.5, kCall = 480, kByte = 0.042;
  const ProductRates& rates = product_rates();
  const bool has_tiles = has_isa(dnnl::cpu_isa::avx512_core_amx), by_rows = p.rhs.column_stride == 1;
  const auto whole = [](std::int64_t x, std::int64_t step) {
    return static_cast<double>((x + step - 1) / step * step);
  };
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), batches = static_cast<double>(p.batches);
  const double padded = std::max(m, 4.0) * whole(p.n, 16) * whole(p.k, 32);
  const bool is_far = p.bytes() / batches > (1 << 20);
  const double slower = is_far ? (has_tiles ? kFarOfTiles : 1) * rates.onednn_bf16_far
                        : has_tiles && (p.n % 16 != 0 || p.k % 32 != 0) ? 2.5
                                                                        : 1;
  const double packing = is_far && p.m > 1 ? static_cast<double>(p.k) * n * (by_rows ? 0.17 : 0.06) : 0;
  const double wide = has_tiles && p.n > 512 ? m * n * 0.25 : 0;
  return batches * (kCall + packing + wide) + std::max(batches * padded / per_ns(p.dtype) * slower, p.bytes() * kByte);
}

}  // namespace

double matmul_onednn_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  if (p.dtype == DType::bf16) return cost_of_pairs(p);
  // Kernels are built for blocks of 16 columns and a few rows.
  const double rows = static_cast<double>(std::max<std::int64_t>(p.m, 4)),
               columns = static_cast<double>((p.n + 15) / 16 * 16);
  const double padded = static_cast<double>(p.batches) * rows * columns * static_cast<double>(p.k);
  const ProductRates& rates = product_rates();
  // What does not fit in a second-level cache is slower.
  const bool is_far = p.dtype == DType::f32 && p.bytes() > (4 << 20);
  // Of a right side that is read as it lies, columns that lie in order take long.
  constexpr std::int64_t kUnpacked = 8;
  const bool by_rows = p.rhs.column_stride == 1;
  const double packing = is_far && p.m > kUnpacked
                             ? static_cast<double>(p.batches * p.k * p.n) * rates.onednn_packing * (by_rows ? 1 : 2)
                             : 0;
  // A call takes longer with half as wide vectors, and so do few rows.
  const bool is_wide = has_isa(dnnl::cpu_isa::avx512_core);
  const double call = rates.onednn_call * (is_wide ? 1 : 1.6);
  const double byte = rates.onednn_byte * (is_wide ? 1 : 2) * (!by_rows && p.m > 2 && p.m <= kUnpacked ? 1.6 : 1);
  // It reads rows where they lie, and those that are a power of two apart share sets of the caches.
  const bool are_apart = p.dtype == DType::f32 && by_rows && p.rhs.row_stride % 512 == 0;
  const double work = padded / per_ns(p.dtype) * (is_far ? rates.onednn_far * (by_rows ? 1 : 1.08) : 1) *
                      (are_apart ? rates.onednn_apart : 1);
  return call * static_cast<double>(p.batches) + packing + std::max(work, p.bytes() * byte);
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
               .by_rows = true,
               .ships = Ships::nowhere});
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
               .by_rows = true,
               .ships = Ships::nowhere});
}
}  // namespace fermata
