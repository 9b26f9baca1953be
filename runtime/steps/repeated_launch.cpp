// Kernels that are launched once for each of many steps: one launch of code for all of them.
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "runtime/cancellation.h"
#include "runtime/repetition.h"
#include "runtime/steps/binding.h"
#include "runtime/steps/kernel_step.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// What is carried stays in the first cache from one step to the next.
constexpr std::int64_t kCarriedBytes = 16 << 10;
/// Columns begin at multiples of this.
constexpr std::int64_t kColumns = 64;
/// Rows of few columns are better joined, step by step.
constexpr std::int64_t kFewColumns = 64, kFewPoints = 1024;
/// A stop is looked for between so many points.
constexpr std::int64_t kPointsBetweenLooks = std::int64_t{1} << 18;

std::int64_t rounded_up(std::int64_t x, std::int64_t granule) { return (x + granule - 1) / granule * granule; }

/// Runs a launch a number of steps at a time, each of them `rows` rows.
void launch_in_turn(const Executable& code, KernelLaunch launch, std::int64_t steps, std::int64_t rows) {
  const std::int64_t points = std::max<std::int64_t>(rows * (launch.column_end - launch.column_begin), 1),
                     at_once = std::max<std::int64_t>(kPointsBetweenLooks / points, 1);
  for (std::int64_t step = 0; step < steps; step += at_once) {
    check_stop(stop_of_run);
    launch.row_begin = step * rows, launch.row_end = std::min(step + at_once, steps) * rows;
    code.launch(launch);
  }
}

}  // namespace

/// What the accesses of a kernel carry from step to step; nullopt if one is read elsewhere than it is written.
std::optional<std::vector<Carried>> BoundKernel::carried_by(const Plan& plan, const Repetition& repetition) const {
  const std::size_t rank = sizes_.size();
  const auto is_written_where_read = [&](std::uint16_t from, std::uint16_t to) {
    const PlanSource &read = step_->sources[from], &written = step_->sources[to];
    if (read.is_part() || read.is_half() != written.is_half() ||
        addresses_[from].byte_offset != addresses_[to].byte_offset ||
        step_->element_bytes[from] != step_->element_bytes[to])
      return false;
    for (std::size_t d = 0; d < rank; ++d)
      if (sizes_[d] != 1 && strides_[from * rank + d] != strides_[to * rank + d]) return false;
    return true;
  };
  std::vector<Carried> carried;
  for (std::size_t o = 0; o < repetition.outputs.size(); ++o) {
    std::vector<std::uint16_t> stores;
    std::ranges::copy_if(step_->stores, std::back_inserter(stores),
                         [&](std::uint16_t to) { return addresses_[to].slot == plan.output_slots[o]; });
    if (stores.empty()) return std::nullopt;
    const std::size_t leaf = repetition.outputs[o].leaf;
    for (std::uint16_t from = 0; leaf != Repetition::kNone && from < addresses_.size(); ++from) {
      if (addresses_[from].slot != plan.leaf_slots[leaf]) continue;
      const auto to = std::ranges::find_if(stores, [&](std::uint16_t a) { return is_written_where_read(from, a); });
      if (to == stores.end()) return std::nullopt;
      carried.push_back({from, *to});
    }
  }
  return carried;
}

bool BoundKernel::run_repeated(const Plan& plan, const Repetition& repetition, std::span<void* const> data_of,
                               std::span<const std::uint64_t> scalars, FunctionRef<void()> begin) const {
  const bool is_map = step_->reduced == 0;
  const std::int64_t steps = repetition.steps;
  if (step_->may_fail() || step_->is_of_weights || rows_ == 0 || columns_ == 0) return false;
  if (addresses_.size() > Pointers().size()) return false;
  if (is_map ? rows_ > 1 && columns_ < kFewColumns && rows_ * columns_ > kFewPoints : ns_ >= kSerialNanoseconds)
    return false;
  const auto carried = carried_by(plan, repetition);
  if (!carried) return false;

  const std::size_t rank = sizes_.size() + 1;
  std::vector<std::int64_t> sizes{steps}, strides;
  sizes.insert(sizes.end(), sizes_.begin(), sizes_.end());
  Pointers origin{};
  for (std::size_t a = 0; a < addresses_.size(); ++a) {
    const std::uint32_t slot = addresses_[a].slot;
    const auto at_leaf = std::ranges::find(plan.leaf_slots, slot),
               at_output = std::ranges::find(plan.output_slots, slot);
    void* data = data_of[slot];
    std::int64_t bytes = 0;
    if (at_leaf != plan.leaf_slots.end()) {
      const Repetition::Leaf& leaf = repetition.leaves[static_cast<std::size_t>(at_leaf - plan.leaf_slots.begin())];
      data = leaf.data, bytes = leaf.bytes;
    } else if (at_output != plan.output_slots.end()) {
      const auto& output = repetition.outputs[static_cast<std::size_t>(at_output - plan.output_slots.begin())];
      data = output.data, bytes = output.bytes;
    }
    const auto element = static_cast<std::int64_t>(step_->element_bytes[a]);
    if (element == 0) bytes = 0;  // only the place within a step matters
    if (bytes != 0 && bytes % element != 0) return false;
    origin[a] = data == nullptr ? nullptr : static_cast<std::byte*>(data) + addresses_[a].byte_offset;
    strides.push_back(bytes == 0 ? 0 : bytes / element);
    strides.insert(strides.end(), &strides_[a * sizes_.size()], &strides_[a * sizes_.size()] + sizes_.size());
  }
  const Executable* const code = step_->executable->repeated(*carried, steps);
  if (code == nullptr) return false;
  repetition.begin(), begin();
  KernelLaunch whole{.pointers = origin.data(),
                     .sizes = sizes.data(),
                     .strides = strides.data(),
                     .offsets = offsets_.data(),
                     .scalars = scalars.data() + step_->scalars.first,
                     .row_begin = 0,
                     .row_end = steps * rows_,
                     .column_begin = 0,
                     .column_end = columns_};
  if (!is_map) return launch_in_turn(*code, whole, steps, rows_), true;

  // Each row is a launch of its own, and so are some of its columns: they go through all steps in the cache.
  std::int64_t carried_bytes = 0;
  for (std::size_t o = 0; o < repetition.outputs.size(); ++o)
    if (repetition.outputs[o].is_carried)
      for (const std::uint16_t to : step_->stores)
        if (addresses_[to].slot == plan.output_slots[o])
          carried_bytes += static_cast<std::int64_t>(step_->element_bytes[to]);
  std::int64_t at_once =
      std::max(kCarriedBytes / std::max<std::int64_t>(carried_bytes, 1) / kColumns * kColumns, kColumns);
  const double point_ns = ns_ / static_cast<double>(rows_ * columns_) * static_cast<double>(steps);
  if (rows_ < thread_count() && point_ns * static_cast<double>(columns_) >= kSerialNanoseconds)
    at_once = std::min(at_once, rounded_up((columns_ + thread_count() - 1) / thread_count(), kColumns));
  if (columns_ <= at_once + kColumns) at_once = columns_;
  std::fill(sizes.begin() + 1, sizes.end() - 1, 1);
  const std::int64_t parts = (columns_ + at_once - 1) / at_once;
  parallel_for(0, rows_ * parts, point_ns * static_cast<double>(at_once), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      Pointers pointers = origin;
      std::array<std::int64_t, Pointers().size()> offsets;
      std::ranges::copy(offsets_, offsets.begin());
      std::int64_t row = unit / parts;
      for (std::size_t d = sizes_.size() - 1; d-- > 0; row /= sizes_[d])
        for (std::size_t a = 0; a < addresses_.size(); ++a) {
          const std::int64_t elements = row % sizes_[d] * strides[a * rank + d + 1];
          offsets[a] += elements;
          if (pointers[a] != nullptr)
            pointers[a] =
                static_cast<std::byte*>(pointers[a]) + elements * static_cast<std::int64_t>(step_->element_bytes[a]);
        }
      KernelLaunch part = whole;
      part.pointers = pointers.data(), part.offsets = offsets.data();
      part.column_begin = unit % parts * at_once, part.column_end = std::min(part.column_begin + at_once, columns_);
      launch_in_turn(*code, part, steps, 1);
    }
  });
  return true;
}

}  // namespace fermata
