// matmul through libxsmm, whose kernels are generated for one small size each: one kernel call per product or per
// strip of rows. Matrices are column-major there, so the operands change places: out^T = rhs^T lhs^T.
#include "codegen_cpu/library/matmul.h"

#include "codegen_cpu/library/matmul_problem.h"
#include "dispatch/kernel_files.h"

#if FERMATA_XSMM

#include <algorithm>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/library/product_rates.h"
#include "codegen_cpu/library/xsmm/kernels.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::int64_t kMostColumns = 128, kMostDepth = 256;
/// Rows of one kernel call: a strip of each side and of the result then fit in the first-level cache.
constexpr std::int64_t kStrip = 64;

/// The kernel for so many rows, or null if the library has none for this machine.
template <class T> xsmm::Kernel<T> kernel_for(const MatmulProblem& p, std::int64_t rows) {
  const auto find = [&] {
    if constexpr (sizeof(T) == 4)
      return xsmm::functions()->find_f32;
    else
      return xsmm::functions()->find_f64;
  }();
  return find(static_cast<int>(p.n), static_cast<int>(rows), static_cast<int>(p.k), static_cast<int>(p.rhs.row_stride),
              static_cast<int>(p.lhs.row_stride));
}

/// False if the library has no kernel; nothing has been written then.
template <class T> bool multiply(const MatmulProblem& p, TileEpilogue epilogue) {
  const std::int64_t rows = std::min(p.m, kStrip), strips = (p.m + rows - 1) / rows, rest = p.m - (strips - 1) * rows;
  const auto kernel = kernel_for<T>(p, rows), last_kernel = rest == rows ? kernel : kernel_for<T>(p, rest);
  if (kernel == nullptr || last_kernel == nullptr) return false;
  const double ns = 20 + static_cast<double>(rows * p.n * p.k) * sizeof(T) / 4 / product_rates().libxsmm;
  parallel_for(0, p.batches * strips, ns, [&](std::int64_t first, std::int64_t last) {
    std::int64_t batch = first / strips, strip = first % strips;
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t i = strip * rows;
      const auto* const lhs = reinterpret_cast<const T*>(p.lhs_of(batch)) + i * p.lhs.row_stride;
      auto* const out = reinterpret_cast<T*>(p.out_of(batch)) + i * p.n;
      (strip + 1 == strips ? last_kernel : kernel)(reinterpret_cast<const T*>(p.rhs_of(batch)), lhs, out);
      epilogue({batch * p.m + i, batch * p.m + i + (strip + 1 == strips ? rest : rows), 0, p.n});
      if (++strip == strips) strip = 0, ++batch;
    }
  });
  return true;
}

/// Strides that the leading dimensions of the library can hold, with the axes of one element given one.
void settle_strides(MatmulProblem& p) {
  if (p.m == 1) p.lhs.row_stride = p.k;
  if (p.k == 1) p.lhs.column_stride = 1, p.rhs.row_stride = std::max(p.rhs.row_stride, p.n);
  if (p.n == 1) p.rhs.column_stride = 1;
}

/// True if rows lie one after another, each without gaps.
bool by_rows(const MatrixSide& side, std::int64_t columns) {
  return side.column_stride == 1 && side.row_stride >= columns && side.row_stride <= INT32_MAX;
}

bool only_avx2() { return eager::instruction_set() == "avx2"; }

}  // namespace

bool has_libxsmm() {
  static const bool has = xsmm::functions() != nullptr && xsmm::functions()->is_usable(only_avx2());
  return has;
}

void matmul_libxsmm(const CallArgs& args, TileEpilogue epilogue) {
  if (!has_libxsmm()) return matmul_portable(args, epilogue);
  const auto accepts = [](const MatrixSide& side, std::int64_t, std::int64_t columns) {
    return by_rows(side, columns);
  };
  if (split_calls(args, accepts, [&](const CallArgs& one) { matmul_libxsmm(one, epilogue); })) return;
  MatmulProblem p = decode_matmul(args);
  settle_strides(p);
  const PackedOperands packed(p, accepts);
  const bool done = p.dtype == DType::f32 ? multiply<float>(p, epilogue) : multiply<double>(p, epilogue);
  if (!done) matmul_portable(args, epilogue);
}

bool matmul_libxsmm_fits(const CallArgs& args) {
  const DType t = args.inputs[0].dtype;
  if ((t != DType::f32 && t != DType::f64) || !has_libxsmm()) return false;
  const MatmulProblem p = decode_matmul(args);
  return p.batches * p.m * p.n != 0 && p.k != 0 && p.n <= kMostColumns && p.k <= kMostDepth;
}

double matmul_libxsmm_cost(const CallArgs& args) {
  MatmulProblem p = decode_matmul(args);
  settle_strides(p);
  const auto size = static_cast<std::int64_t>(byte_size(p.dtype));
  // Kernels work on whole vectors of columns, but masked ones are slower, most of all those of AVX2, which has no
  // registers of masks.
  const std::int64_t lanes = (only_avx2() ? 32 : 64) / size, rest = p.n % lanes;
  const std::int64_t masked = rest == 0 ? 0 : only_avx2() ? 5 * lanes / 2 : p.n < lanes ? lanes : lanes + rest;
  const ProductRates& rates = product_rates();
  const double rate = only_avx2() ? std::min(rates.libxsmm, rates.onednn_avx2) : rates.libxsmm;
  const double padded = static_cast<double>(p.n - rest + masked), batches = static_cast<double>(p.batches);
  const double work = batches * static_cast<double>(p.m * p.k) * padded / (rate / (size == 4 ? 1 : 2));
  // Sides that do not lie in rows are copied first, row by row.
  const auto copy = [batches](std::int64_t rows, std::int64_t columns) {
    return 100 + batches * (0.2 * static_cast<double>(rows * columns) + 4 * static_cast<double>(rows));
  };
  double copies = 0;
  if (!by_rows(p.lhs, p.k)) copies += copy(p.m, p.k);
  if (!by_rows(p.rhs, p.n)) copies += copy(p.k, p.n);
  return rates.libxsmm_call + 15 * batches + work + copies;
}

}  // namespace fermata

#else

#include "ir/error.h"

namespace fermata {

bool has_libxsmm() { return false; }
void matmul_libxsmm(const CallArgs&, TileEpilogue) { throw_internal("matmul_libxsmm: built without libxsmm"); }
bool matmul_libxsmm_fits(const CallArgs&) { return false; }
double matmul_libxsmm_cost(const CallArgs&) { return 0; }

}  // namespace fermata

#endif

namespace fermata {
void matmul_libxsmm(const CallArgs& args) { matmul_libxsmm(args, tile_epilogue_of(args)); }
}  // namespace fermata

namespace fermata {
FERMATA_KERNELS(cpu) {
  if (!has_libxsmm()) return;
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "libxsmm",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::f64,
               .call = &matmul_libxsmm,
               .fits = &matmul_libxsmm_fits,
               .cost = &matmul_libxsmm_cost,
               .fits_text = kMatmulLibxsmmFits,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true});
}
}  // namespace fermata
