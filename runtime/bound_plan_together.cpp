// Steps of a BoundPlan that run together: equal calls, which become one (passes/gather_calls.h), and, block of rows by
// block of rows, a product, a kernel on it and a product of what that leaves (passes/join_rows.h). What is between
// those lives in memory of the thread, which the kernel is pointed to. A device runs those as one kernel of its own.
#include <algorithm>

#include "runtime/allocator.h"
#include "runtime/bound_plan.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// What a block leaves between its steps stays in a second-level cache beside what it reads.
constexpr std::int64_t kBlockBytes = 1 << 20;
/// Both products prepare their right sides anew for each block: fewer rows than this are not worth it.
constexpr std::int64_t kFewestRows = 128;
/// Less than this stays in a cache as it is.
constexpr double kSmallResult = 2 << 20;

struct Sizes {
  std::int64_t m, k, n;
};
/// Of a call step whose views begin at `views`.
Sizes sizes_of(const TensorView* views) {
  const TensorView &lhs = views[0], &rhs = views[1];
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

std::uint16_t access_of(const PlanStep& kernel, std::uint32_t slot) {
  std::uint16_t found = kNoAccess;
  for (std::size_t a = 0; a < kernel.sources.size(); ++a) {
    if (kernel.sources[a].slot != slot) continue;
    if (found != kNoAccess) return kNoAccess;
    found = static_cast<std::uint16_t>(a);
  }
  return found;
}

/// Whether two calls have the same sizes, strides and attributes.
bool BoundPlan::same_numbers(const Step& a, const Step& b) const {
  const auto of = [&](const Step& s) {
    const std::int64_t* attributes = numbers_.data() + s.offsets;
    return std::span(numbers_.data() + s.sizes, attributes + 1 + *attributes);
  };
  return std::ranges::equal(of(a), of(b));
}

/// Gives the first of some equal calls the views of all: inputs in their order, then outputs.
void BoundPlan::gather_calls(const Plan& plan) {
  for (std::size_t i = 0; i < steps_.size(); i += steps_[i].calls) {
    Step& first = steps_[i];
    while (i + first.calls < steps_.size() && plan.steps[i + first.calls].beside &&
           same_numbers(first, steps_[i + first.calls]))
      ++first.calls;
    if (first.calls == 1) continue;
    const std::size_t operands = plan.steps[i].operand_order.size();
    const auto begin = static_cast<std::uint32_t>(views_.size());
    const auto add = [&](std::size_t view) {
      views_.push_back(TensorView(views_[view])), view_addresses_.push_back(view_addresses_[view]);
    };
    for (std::size_t call = i; call < i + first.calls; ++call)
      for (std::size_t k = 0; k < operands; ++k) add(steps_[call].first_view + k);
    for (std::size_t call = i; call < i + first.calls; ++call) add(steps_[call].first_view + operands);
    first.first_view = begin;
  }
}

/// Whether a device does the last three steps as one.
bool BoundPlan::joins_on_device(const Plan& plan, std::size_t last) const {
  const PlanStep &second = plan.steps[last], &kernel = plan.steps[last - 1], &first = plan.steps[last - 2];
  if (!has_points_of_call(plan, last - 1)) return false;
  const std::span<const std::int64_t> between = records_[first.record]->sizes(), out = records_[second.record]->sizes();
  const Step& b = steps_[last - 1];
  const std::int64_t rows = between[between.size() - 2], columns = between.back(),
                     all_rows = element_count(between) / columns;
  if (b.rows != all_rows || numbers_[b.sizes + b.rank - 1] != columns) return false;
  const std::int64_t* numbers = numbers_.data() + steps_[last - 2].sizes;
  const auto estimate = kernel.executable->estimate_joined({.batches = all_rows / rows,
                                                            .rows = rows,
                                                            .columns = columns,
                                                            .depth = numbers[*numbers],
                                                            .width = out.back(),
                                                            .factors = first.operand_dtype,
                                                            .weights = second.operand_dtype,
                                                            .made = access_of(kernel, first.output.slot)});
  return estimate && estimate->pays;
}

/// Rows of a block, or 0 if the steps are better off, or only right, one after the other.
std::int64_t BoundPlan::rows_to_join(const Plan& plan, std::size_t last) const {
  const PlanStep &second = plan.steps[last], &first = plan.steps[last - 2];
  const bool on_device = plan.backend != BackendKey::cpu;
  if (!on_device && !steps_[last - 1].on_tiles) return 0;
  const std::span<const std::int64_t> between = records_[first.record]->sizes(), out = records_[second.record]->sizes(),
                                      left = records_[plan.slots[second.sources[0].slot].record]->sizes();
  const std::size_t rank = between.size();
  if (!std::ranges::equal(between, left) || out.size() != rank) return 0;
  if (!std::ranges::equal(between.first(rank - 1), out.first(rank - 1))) return 0;
  const std::int64_t rows = between[rank - 2], columns = between[rank - 1];
  if (on_device) return joins_on_device(plan, last) ? rows : 0;
  const auto bytes = static_cast<std::int64_t>(byte_size(first.output_dtype) + byte_size(second.source_dtypes[0]));
  const auto elements = static_cast<double>(element_count(between));
  if (elements * static_cast<double>(bytes) < kSmallResult || element_count(out) == 0) return 0;
  const std::int64_t most = std::clamp(kBlockBytes / (columns * bytes), std::min(rows, kFewestRows), rows);
  const std::int64_t blocks = (rows + most - 1) / most;
  // The sums of the first product and the columns of the second one say what the right sides of a block hold.
  const std::int64_t* numbers = numbers_.data() + steps_[last - 2].sizes;
  const std::int64_t depth = numbers[*numbers];
  return blocks == 1 || depth + out[rank - 1] <= 4 * most ? (rows + blocks - 1) / blocks : 0;
}

void BoundPlan::run_joined(const Plan& plan, std::size_t i) {
  const PlanStep &kernel = plan.steps[i + 1], &last = plan.steps[i + 2];
  const CallArgs first = prepare_call(plan.steps[i], steps_[i], nullptr),
                 second = prepare_call(last, steps_[i + 2], nullptr);
  const RunSite site{kernel.name, steps_[i + 2].where};
  const RunSiteGuard guard(site);
  kernel.executable->launch_joined(access_of(kernel, plan.steps[i].output.slot), first, launch_of(steps_[i + 1]),
                                   second);
}

void BoundPlan::run_on_row_blocks(const Plan& plan, std::size_t i) {
  if (plan.backend != BackendKey::cpu) return run_joined(plan, i);
  const PlanStep &kernel = plan.steps[i + 1], &last = plan.steps[i + 2];
  const CallArgs first = prepare_call(plan.steps[i], steps_[i], nullptr),
                 second = prepare_call(last, steps_[i + 2], nullptr);
  const TensorView& between = first.outputs[0];
  const Sizes a = sizes_of(first.inputs.data()), b = sizes_of(second.inputs.data());
  const std::int64_t most = steps_[i + 2].block_rows, blocks = (a.m + most - 1) / most;
  const std::int64_t batches = between.element_count() / (a.m * a.n);
  const KernelLaunch launch = launch_of(steps_[i + 1]);
  const Executable& executable = kernel.executable->suited_to(launch, false);  // the next product reads what it writes
  const double ns_per_row =
      static_cast<double>(a.k * a.n + b.k * b.n) / 60 + static_cast<double>(a.n) * kernel.ns_per_point;
  parallel_for(0, batches * blocks, ns_per_row * static_cast<double>(most), [&](std::int64_t begin, std::int64_t end) {
    const ScratchMatrix made(most, a.n, between.dtype), left(most, a.n, second.inputs[0].dtype);
    std::vector<void*> pointers(launch.pointers, launch.pointers + kernel.sources.size());
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t batch = task / blocks, row = task % blocks * most, rows = std::min(most, a.m - row);
      const auto call = [&](CallKernel run, const CallArgs& whole, Matrix lhs, Matrix out) {
        const Matrix rhs = matrix_of(whole.inputs[1], between, batch);
        const TensorView inputs[] = {lhs.view(), rhs.view()}, output = out.view();
        CallArgs part = whole;
        part.inputs = inputs, part.outputs = {&output, 1};
        run(part);
      };
      Matrix lhs = matrix_of(first.inputs[0], between, batch), out = matrix_of(second.outputs[0], between, batch);
      lhs.take_rows(row, rows), out.take_rows(row, rows);
      call(steps_[i].kernel, first, lhs, made.rows(rows));
      const std::int64_t origin = batch * a.m + row;
      for (std::size_t s = 0; s < pointers.size(); ++s) {
        if (kernel.sources[s].slot == plan.steps[i].output.slot) pointers[s] = made.origin(origin);
        if (kernel.sources[s].slot == last.sources[0].slot) pointers[s] = left.origin(origin);
      }
      KernelLaunch part = launch;
      part.pointers = pointers.data();
      if (steps_[i + 1].rows == batches * a.m)
        part.row_begin = origin, part.row_end = origin + rows;
      else  // all in one row
        part.column_begin = origin * a.n, part.column_end = (origin + rows) * a.n;
      executable.launch(part);
      call(steps_[i + 2].kernel, second, left.rows(rows), out);
    }
  });
}

}  // namespace fermata
