// See product_chain_step.h.
#include "runtime/steps/product_chain_step.h"

#include <algorithm>
#include <utility>

#include "runtime/allocator.h"
#include "runtime/device_run.h"
#include "runtime/steps/binding.h"
#include "runtime/steps/bound_steps.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// The intermediate values of a block fit in the L2 cache together with its operands.
constexpr std::int64_t kBlockBytes = 1 << 20;
/// Both products prepare their right sides anew for each block: fewer rows than this are not worth it.
constexpr std::int64_t kFewestRows = 128;
/// Less than this stays in a cache as it is.
constexpr double kSmallResult = 2 << 20;

struct Sizes {
  std::int64_t m, k, n;
};
Sizes sizes_of(const CallArgs& product) {
  const TensorView &lhs = product.inputs[0], &rhs = product.inputs[1];
  return {lhs.sizes[lhs.rank - 2], lhs.sizes[lhs.rank - 1], rhs.sizes[rhs.rank - 1]};
}

/// One matrix of an operand, as a view of its own.
struct Matrix {
  std::int64_t sizes[2], strides[2];
  std::byte* data;
  DType dtype;
  TensorView view() const { return {data, dtype, 2, sizes, strides}; }
  /// Leaves only some rows.
  void take_rows(std::int64_t begin, std::int64_t count) {
    data += begin * strides[0] * static_cast<std::int64_t>(byte_size(dtype)), sizes[0] = count;
  }
};

/// The matrix of a batch, numbered over the batch axes of `result`; the operand's are aligned to the right of them.
Matrix matrix_of(const TensorView& x, const TensorView& result, std::int64_t batch) {
  const unsigned axes = x.rank - 2u;
  std::int64_t offset = 0;
  for (unsigned i = 0; i < axes; ++i) {  // from the last batch axis
    const std::int64_t size = result.sizes[result.rank - 3u - i];
    if (x.sizes[axes - 1 - i] != 1) offset += batch % size * x.strides[axes - 1 - i];
    batch /= size;
  }
  return {{x.sizes[axes], x.sizes[axes + 1]},
          {x.strides[axes], x.strides[axes + 1]},
          static_cast<std::byte*>(x.data) + offset * static_cast<std::int64_t>(byte_size(x.dtype)),
          x.dtype};
}

struct ScratchMatrix {
  ScratchMatrix(std::int64_t rows, std::int64_t columns, DType t)
      : held(allocate_bytes(static_cast<std::size_t>(rows * columns) * byte_size(t))), columns(columns), dtype(t) {}
  ~ScratchMatrix() { release_bytes(held); }
  ScratchMatrix(const ScratchMatrix&) = delete;
  Matrix rows(std::int64_t count) const {
    return {{count, columns}, {columns, 1}, static_cast<std::byte*>(held.data), dtype};
  }
  /// Where a tensor would begin whose rows from `row` on are these.
  void* origin(std::int64_t row) const {
    const auto before = static_cast<std::uintptr_t>(row * columns) * byte_size(dtype);
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(held.data) - before);
  }
  const Allocation held;
  const std::int64_t columns;
  const DType dtype;
};

}  // namespace

void ProductChainStep::bind(const Binding& binding, BoundSteps& bound) const {
  if (bound.add<BoundProductChain>(binding.step).bind(*this, binding)) {
    binding.slot_bytes[first.call.output.slot] = binding.slot_bytes[second().sources[0].slot] = 0;
    if (epilogue() != nullptr) epilogue()->bind(binding, bound);
    return;
  }
  bound.take_back();
  first.bind(binding, bound);
  std::visit([&](const auto& step) { step.bind(binding, bound); }, last);
}

bool BoundProductChain::bind(const ProductChainStep& step, const Binding& binding) {
  in_one_launch_ = !binding.plan.capabilities.launches_on_caller;
  BoundEpilogue first;
  const bool fits = first.bind(step.first, binding);
  first_ = std::move(first.call), between_ = std::move(first.kernel), second_.bind(step.second(), binding);
  if (!in_one_launch_ && !fits) return false;
  const std::span<const std::int64_t> made = binding.sizes_of(step.first.call.record),
                                      out = binding.sizes_of(step.second().record),
                                      left = binding.sizes_of_slot(step.second().sources[0].slot);
  if (made.size() < 2 || !std::ranges::equal(made, left) || out.size() != made.size() ||
      !std::ranges::equal(made.first(made.size() - 1), out.first(made.size() - 1)))
    return false;
  if (in_one_launch_) return runs_in_one_launch(binding);
  block_rows_ = rows_of_block();
  return block_rows_ != 0;
}

bool BoundProductChain::runs_in_one_launch(const Binding& binding) const {
  if (!has_points_of(between_, first_, binding)) return false;
  const Shape &made = first_.output().sizes, &out = second_.output().sizes;
  const std::int64_t rows = made[made.size() - 2], columns = made.back(), all_rows = element_count(made) / columns;
  if (between_.rows() != all_rows || between_.sizes().back() != columns) return false;
  const auto estimate =
      between_.step().executable->estimate_chain({.batches = all_rows / rows,
                                                  .rows = rows,
                                                  .columns = columns,
                                                  .depth = first_.operands()[0].sizes.back(),
                                                  .width = out.back(),
                                                  .factors = first_.step().operand_dtype,
                                                  .weights = second_.step().operand_dtype,
                                                  .made = access_of(between_.step(), first_.step().output.slot)});
  return estimate && estimate->pays;
}

/// 0 if the steps are better off one after the other.
std::int64_t BoundProductChain::rows_of_block() const {
  const Shape &made = first_.output().sizes, &out = second_.output().sizes;
  const std::int64_t rows = made[made.size() - 2], columns = made.back();
  const auto bytes =
      static_cast<std::int64_t>(byte_size(first_.step().output_dtype) + byte_size(second_.step().source_dtypes[0]));
  const auto elements = static_cast<double>(element_count(made));
  if (elements * static_cast<double>(bytes) < kSmallResult || element_count(out) == 0) return 0;
  const std::int64_t most = std::clamp(kBlockBytes / (columns * bytes), std::min(rows, kFewestRows), rows);
  const std::int64_t blocks = (rows + most - 1) / most;
  // The sums of the first product and the columns of the second one say what the right sides of a block hold.
  const std::int64_t depth = first_.operands()[0].sizes.back();
  return blocks == 1 || depth + out.back() <= 4 * most ? (rows + blocks - 1) / blocks : 0;
}

void BoundProductChain::run_in_one_launch(Run& run) {
  const CallArgs first = first_.arguments(run), second = second_.arguments(run);
  const KernelStep& kernel = between_.step();
  const RunSite site{kernel.name, second_.where()};
  const RunSiteGuard guard(site);
  kernel.executable->launch_chain(access_of(kernel, first_.step().output.slot), first, between_.launch(run), second);
}

void BoundProductChain::run_by_rows(Run& run) {
  const KernelStep& kernel = between_.step();
  const std::uint32_t made_slot = first_.step().output.slot, left_slot = second_.step().sources[0].slot;
  const CallArgs first = first_.arguments(run), second = second_.arguments(run);
  const TensorView& between = first.outputs[0];
  const Sizes a = sizes_of(first), b = sizes_of(second);
  const std::int64_t most = block_rows_, blocks = (a.m + most - 1) / most;
  const std::int64_t batches = between.element_count() / (a.m * a.n);
  const KernelLaunch launch = between_.launch(run);
  const Executable& executable =
      kernel.executable->variant_for(launch, false);  // the next product reads what it writes
  const double ns_per_row =
      static_cast<double>(a.k * a.n + b.k * b.n) / 60 + static_cast<double>(a.n) * kernel.ns_per_point;
  parallel_for(0, batches * blocks, ns_per_row * static_cast<double>(most), [&](std::int64_t begin, std::int64_t end) {
    const ScratchMatrix made(most, a.n, between.dtype), left(most, a.n, second.inputs[0].dtype);
    std::vector<void*> pointers(launch.pointers, launch.pointers + kernel.sources.size());
    for (std::int64_t task = begin; task < end; ++task) {
      // All blocks have about as many rows: few rows may be multiplied in another way, with other bits.
      const std::int64_t batch = task / blocks, block = task % blocks, row = block * a.m / blocks,
                         rows = (block + 1) * a.m / blocks - row;
      const auto call = [&](CallKernel kernel_of_call, const CallArgs& whole, Matrix lhs, Matrix out) {
        const Matrix rhs = matrix_of(whole.inputs[1], between, batch);
        const TensorView inputs[] = {lhs.view(), rhs.view()}, output = out.view();
        CallArgs part = whole;
        part.inputs = inputs, part.outputs = {&output, 1};
        kernel_of_call(part);
      };
      Matrix lhs = matrix_of(first.inputs[0], between, batch), out = matrix_of(second.outputs[0], between, batch);
      lhs.take_rows(row, rows), out.take_rows(row, rows);
      call(first_.kernel(), first, lhs, made.rows(rows));
      const std::int64_t origin = batch * a.m + row;
      for (std::size_t s = 0; s < pointers.size(); ++s) {
        if (kernel.sources[s].slot == made_slot) pointers[s] = made.origin(origin);
        if (kernel.sources[s].slot == left_slot) pointers[s] = left.origin(origin);
      }
      KernelLaunch part = launch;
      part.pointers = pointers.data();
      if (between_.rows() == batches * a.m)
        part.row_begin = origin, part.row_end = origin + rows;
      else  // all in one row
        part.column_begin = origin * a.n, part.column_end = (origin + rows) * a.n;
      executable.launch(part);
      call(second_.kernel(), second, left.rows(rows), out);
    }
  });
}

StepWork BoundProductChain::work() const {
  StepWork all = first_.work();
  const StepWork between = between_.work(first_.step().output.slot), last = second_.work();
  all.bytes += between.bytes + last.bytes, all.operations += between.operations + last.operations;
  return all;
}

std::string BoundProductChain::description() const {
  return first_.description() + " with " + between_.step().name + " and " + second_.description() +
         " on blocks of its rows";
}

}  // namespace fermata
