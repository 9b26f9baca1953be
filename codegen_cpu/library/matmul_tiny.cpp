// Products of tiny matrices by a kernel of our own, which does many in a row: for the other kernels the way to each
// product takes longer than the product.
#include <algorithm>
#include <utility>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/matmul_tiny_kernels.h"
#include "dispatch/kernel_files.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Null where the processor has no kernel.
const TinyKernels* kernels() {
#if defined(__x86_64__)
  static const TinyKernels* const best = eager::instruction_set() == "avx512" ? &kTinyAvx512
                                         : eager::instruction_set() == "avx2" ? &kTinyAvx2
                                                                              : nullptr;
  return best;
#else
  return nullptr;
#endif
}

using TinyKernel = void (*)(const TinyProducts&);

TinyKernel kernel_for(const MatmulProblem& p) {
  const bool by_halves = is_vector_product(p) && vector_product_of(p).sums_by_halves();
  if (p.dtype == DType::f32) return by_halves ? kernels()->by_halves_f32 : kernels()->in_order_f32;
  return by_halves ? kernels()->by_halves_f64 : kernels()->in_order_f64;
}

/// Products whose operands are evenly spaced, from one batch on.
struct Run {
  std::int64_t end, lhs_step, rhs_step;
};
Run run_from(const MatmulProblem& p, std::int64_t batch) {
  if (p.batch_sizes.empty()) return {batch + 1, 0, 0};
  const std::size_t last = p.batch_sizes.rank() - 1;
  const std::int64_t size = p.batch_sizes[last];
  return {batch + size - batch % size, p.lhs.batch_strides[last], p.rhs.batch_strides[last]};
}

/// Nanoseconds of one product.
double cost_of_one(const MatmulProblem& p) {
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  if (is_vector_product(p) && vector_product_of(p).sums_by_halves()) return 2 + m * n * (p.k <= 4 ? 0.4 : 1.3);
  const bool is_copied = p.n != 1 && p.rhs.column_stride != 1 && p.k != 1;
  const double registers = byte_size(p.dtype) == 8 && p.n > 4 && eager::instruction_set() != "avx512" ? 2 : 1;
  return 2 + m * (0.6 + 0.25 * k) * registers + (is_copied ? 0.4 * n * k : 0);
}

}  // namespace

bool matmul_tiny_fits(const CallArgs& args) {
  if (kernels() == nullptr || !(DTypeSet(DType::f32) | DType::f64).has(args.inputs[0].dtype)) return false;
  const MatmulProblem p = decode_matmul(args);
  const auto is_tiny = [](std::int64_t size) { return 1 <= size && size <= kTinyMost; };
  return is_tiny(p.m) && is_tiny(p.n) && is_tiny(p.k) && p.batches > 0;
}

double matmul_tiny_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  return 60 + static_cast<double>(p.batches) * cost_of_one(p);
}

void matmul_tiny(const CallArgs& args) { matmul_tiny(args, tile_epilogue_of(args)); }

void matmul_tiny(const CallArgs& args, TileEpilogue epilogue) {
  const MatmulProblem p = decode_matmul(args);
  const TinyKernel kernel = kernel_for(p);
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
  // The kernel that sums by halves multiplies a matrix and a column: a row and a matrix are turned over for it.
  const bool is_turned = p.m == 1 && (kernel == kernels()->by_halves_f32 || kernel == kernels()->by_halves_f64);
  parallel_for(0, p.batches, cost_of_one(p), [&](std::int64_t first, std::int64_t last) {
    while (first < last) {
      const Run run = run_from(p, first);
      const std::int64_t end = std::min(last, run.end);
      TinyProducts t{.lhs = p.lhs_of(first),
                     .lhs_batch = run.lhs_step,
                     .lhs_row = p.lhs.row_stride,
                     .lhs_k = p.lhs.column_stride,
                     .rhs = p.rhs_of(first),
                     .rhs_batch = run.rhs_step,
                     .rhs_k = p.rhs.row_stride,
                     .rhs_column = p.rhs.column_stride,
                     .out = p.out_of(first),
                     .end = p.out_of(first) + (end - first) * p.m * p.n * bytes,
                     .count = end - first,
                     .m = p.m,
                     .n = p.n,
                     .k = p.k};
      if (is_turned) {
        std::swap(t.lhs, t.rhs), std::swap(t.lhs_batch, t.rhs_batch), std::swap(t.m, t.n);
        t.lhs_row = p.rhs.column_stride, t.lhs_k = p.rhs.row_stride, t.rhs_k = p.lhs.column_stride;
      }
      kernel(t);
      epilogue({first * p.m, end * p.m, 0, p.n});
      first = end;
    }
  });
}

}  // namespace fermata

namespace fermata {
FERMATA_KERNELS(cpu) {
  if (kernels() == nullptr) return;
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "tiny",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::f64,
               .call = &matmul_tiny,
               .fits = &matmul_tiny_fits,
               .cost = &matmul_tiny_cost,
               .fits_text = kMatmulTinyFits,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true});
}
}  // namespace fermata
