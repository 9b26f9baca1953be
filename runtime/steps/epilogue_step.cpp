// See epilogue_step.h.
#include "runtime/steps/epilogue_step.h"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "runtime/steps/binding.h"
#include "runtime/steps/bound_steps.h"

namespace fermata {
namespace {

/// What is adjacent in the result of a call.
std::int64_t columns_of(std::span<const std::int64_t> result, bool channels_last) {
  return channels_last ? result[1] : result.back();
}

/// Whether the rows of the kernel are those of the result or whole planes of it, or all in one row whose parts may
/// start where tiles do.
bool fits_tiles(const BoundKernel& kernel, std::span<const std::int64_t> result, EpilogueForm form,
                bool channels_last) {
  const std::int64_t columns = columns_of(result, channels_last), rows = element_count(result) / columns;
  if (goes_along_channels(kernel.step(), result.size()) != channels_last) return false;
  if (channels_last) return kernel.rows() == rows && kernel.columns() == columns;
  if (kernel.step().reduced != 0) return kernel.rows() == rows && kernel.sizes().back() == columns;
  const std::int64_t plane = form == EpilogueForm::planes ? element_count(result.subspan(2)) : 0;
  const std::int64_t start = plane != 0 ? plane : columns;  // tiles start at multiples of it
  return (kernel.rows() == rows && kernel.columns() == columns) ||
         (plane != 0 && kernel.columns() == plane && kernel.rows() * plane == rows * columns) ||
         (kernel.rows() == 1 && kernel.columns() == rows * columns && start % kReductionLanes == 0);
}

/// Where the result of the call would be as a whole.
struct CallResult {
  std::uint32_t slot;
  const std::byte* data;
  std::int64_t element_bytes;
};

/// Runs a kernel on the tiles of a result [rows, columns], and counts the elements that are done.
class TileRunner {
 public:
  TileRunner(const BoundKernel& kernel, const KernelLaunch& whole, const CallResult& result, std::int64_t rows,
             std::int64_t columns)
      : kernel_(kernel),
        whole_(whole),
        result_(result),
        executable_(kernel.step().executable->variant_for(whole)),
        rows_(rows),
        columns_(columns),
        columns_done_(reduces() ? static_cast<std::size_t>(rows) : 0) {}

  void operator()(const ResultTile& tile) {
    const std::int64_t width = tile.column_end - tile.column_begin;
    done_.fetch_add((tile.row_end - tile.row_begin) * width, std::memory_order_relaxed);
    KernelLaunch part = whole_;
    BoundKernel::Pointers pointers;
    if (tile.rows != nullptr) {
      kernel_.move_pointers(result_.slot,
                            tile.rows - (result_.data + tile.row_begin * columns_ * result_.element_bytes), pointers);
      part.pointers = pointers.data();
    }
    part.row_begin = tile.row_begin, part.row_end = tile.row_end;
    if (reduces()) {  // the thread that finishes the last tile of some rows continues with them
      auto& done = columns_done_[static_cast<std::size_t>(tile.row_begin)];
      if (width == columns_ || done.fetch_add(width, std::memory_order_acq_rel) + width == columns_)
        executable_.launch(part);
      return;
    }
    part.column_begin = tile.column_begin, part.column_end = tile.column_end;
    if (kernel_.rows() == rows_) return executable_.launch(part);
    if (kernel_.rows() != 1) {  // a row is a plane
      const std::int64_t plane = kernel_.columns();
      part.row_begin = tile.row_begin * columns_ / plane, part.row_end = tile.row_end * columns_ / plane;
      part.column_begin = 0, part.column_end = plane;
      return executable_.launch(part);
    }
    part.row_begin = 0, part.row_end = 1;
    const std::int64_t at_once = width == columns_ ? tile.row_end - tile.row_begin : 1;
    for (std::int64_t row = tile.row_begin; row < tile.row_end; row += at_once) {
      part.column_begin = row * columns_ + tile.column_begin;
      part.column_end = part.column_begin + at_once * columns_ - (columns_ - width);
      executable_.launch(part);
    }
  }
  bool is_done() const { return done_.load() == rows_ * columns_; }

 private:
  bool reduces() const { return kernel_.step().reduced != 0; }

  const BoundKernel& kernel_;
  const KernelLaunch& whole_;
  const CallResult result_;
  const Executable& executable_;
  const std::int64_t rows_, columns_;
  std::vector<std::atomic<std::int64_t>> columns_done_;  // of the rows that start a tile
  std::atomic<std::int64_t> done_{0};
};

}  // namespace

bool has_points_of(const BoundKernel& kernel, const BoundCall& call, const Binding& binding) {
  const std::span<const std::int64_t> result = binding.sizes_of(call.step().record);
  if (result.size() < 2 || !std::ranges::equal(result, binding.sizes_of(kernel.step().record)) ||
      element_count(result) == 0)
    return false;
  // With a vector among the operands the result may not be cut by rows and columns.
  return std::ranges::all_of(call.operands(), [](const BoundOperand& o) { return o.is_scalar || o.sizes.rank() >= 2; });
}

void EpilogueStep::bind(const Binding& binding, BoundSteps& bound) const {
  auto& together = bound.add<BoundEpilogue>(binding.step);
  if (together.bind(*this, binding)) return;
  BoundEpilogue apart = std::move(together);
  bound.take_back();
  bound.add<BoundCall>(binding.step) = std::move(apart.call);
  auto& kernel = bound.add<BoundKernel>(binding.step) = std::move(apart.kernel);
  kernel.join_axes();
}

bool BoundEpilogue::bind(const EpilogueStep& step, const Binding& binding) {
  call.bind(step.call, binding), kernel.bind(step.epilogue, binding);
  const PlanSlot& slot = binding.plan.slots[step.call.output.slot];
  is_read_by_kernel_only_ = slot.kind == PlanSlot::Kind::temporary && slot.last_step == binding.step;
  if (!has_points_of(kernel, call, binding)) return false;
  has_channels_last_ = slot.channels_last;
  if (step.form == EpilogueForm::whole) return step.epilogue.reduced == 0;
  return fits_tiles(kernel, binding.sizes_of(step.call.record), step.form, slot.channels_last);
}

void BoundEpilogue::run(Run& run) {
  const KernelLaunch launch = kernel.launch(run);
  const Shape& result = call.output().sizes;
  const std::int64_t columns = columns_of(result, has_channels_last_);
  const std::uint32_t slot = call.step().output.slot;
  const auto* const data = static_cast<const std::byte*>(run.address(slot, call.output().byte_offset));
  const auto element_bytes = static_cast<std::int64_t>(byte_size(call.output().dtype));
  TileRunner tiles(kernel, launch, {slot, data, element_bytes}, element_count(result) / columns, columns);
  // Where the kernel writes over the result, a tile elsewhere would be a copy more.
  const bool overwrites = launch.pointers[kernel.step().stores[0]] == data;
  Epilogue epilogue{.on_tile = tiles,
                    .takes_tiles_elsewhere = is_read_by_kernel_only_ && !overwrites && kernel.can_move_pointers()};
  std::tie(epilogue.reads, epilogue.read_bytes) = kernel.operand_beside(slot);
  if (is_read_by_kernel_only_) epilogue.kernel = kernel.step().executable.get(), epilogue.launch = &launch;
  call.run(run, &epilogue);
  if (!epilogue.is_done && !tiles.is_done()) kernel.run(run);
}

StepWork BoundEpilogue::work() const {
  StepWork all = call.work();
  const StepWork after = kernel.work(call.step().output.slot);
  all.bytes += after.bytes, all.operations += after.operations;
  return all;
}

std::string BoundEpilogue::description() const {
  return call.description() + " with " + kernel.step().name + " on its tiles";
}

}  // namespace fermata
