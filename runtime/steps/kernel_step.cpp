// See kernel_step.h.
#include "runtime/steps/kernel_step.h"

#include <algorithm>
#include <bit>

#include "runtime/bounds_check.h"
#include "runtime/device_run.h"
#include "runtime/prepacked_weights.h"
#include "runtime/reduced_axes.h"
#include "runtime/steps/binding.h"
#include "runtime/steps/bound_steps.h"
#include "runtime/steps/joined_rows.h"
#include "runtime/storage.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Column ranges of a launch start at multiples of this many elements.
constexpr std::int64_t kColumnGranule = 1024;
/// What a point takes longer where neighbors along the innermost axis lie apart.
constexpr double kApartNanoseconds = 0.04;

}  // namespace

std::uint16_t access_of(const KernelStep& kernel, std::uint32_t slot) {
  std::uint16_t found = kNoAccess;
  for (std::size_t a = 0; a < kernel.sources.size(); ++a) {
    if (kernel.sources[a].slot != slot) continue;
    if (found != kNoAccess) return kNoAccess;
    found = static_cast<std::uint16_t>(a);
  }
  return found;
}

bool goes_along_channels(const KernelStep& kernel, std::size_t rank) {
  return rank > 2 && kernel.axes.back().last == 1;
}

void KernelStep::bind(const Binding& binding, BoundSteps& bound) const {
  auto& kernel = bound.add<BoundKernel>(binding.step);
  kernel.bind(*this, binding), kernel.order_axes(), kernel.join_axes();
}

void BoundKernel::bind(const KernelStep& step, const Binding& binding) {
  step_ = &step;
  checked_.clear();
  if (step.may_fail())
    for (const PositionChecks::Node& n : step.checks->nodes())
      checked_.push_back({Shape(binding.sizes_of(n.x.record)), Shape(binding.sizes_of(n.index.record)),
                          binding.records[n.record]->where});
  sizes_.clear(), strides_.clear(), offsets_.clear(), addresses_.clear(), bytes_.clear();
  rows_ = columns_ = 1;
  const std::span<const std::int64_t> domain = binding.sizes_of(step.record);
  double points = 1;
  for (std::size_t d = 0; d < step.axes.size(); ++d) {
    std::int64_t size = 1;  // an axis run of a 0-d domain is empty: first > last
    for (unsigned i = step.axes[d].first; i <= step.axes[d].last && i < domain.size(); ++i) size *= domain[i];
    sizes_.push_back(size), points *= static_cast<double>(size);
    if ((step.reduced >> d & 1) != 0) continue;
    (d + 1 == step.axes.size() ? columns_ : rows_) *= size;
  }
  ns_ = points * step.ns_per_point;
  for (std::size_t access = 0; access < step.sources.size(); ++access) {
    const BoundSource source = binding.resolve(step.sources[access]);
    for (const AxisRun run : step.axes) {
      // The innermost axis of a run that is longer than 1 has the run's stride: a stride of a size-1 axis means
      // nothing.
      std::int64_t stride = 0;
      for (int i = run.last; i >= run.first && i < static_cast<int>(domain.size()); --i) {
        stride = source.strides[static_cast<std::size_t>(i)];
        if (domain[static_cast<std::size_t>(i)] != 1) break;
      }
      strides_.push_back(stride);
    }
    if (!step.axes.empty() && strides_.back() != 0 && strides_.back() != 1) ns_ += points * kApartNanoseconds;
    offsets_.push_back(source.offset);
    addresses_.push_back(
        {step.sources[access].slot, source.offset * static_cast<std::int64_t>(step.element_bytes[access])});
    bytes_.push_back(static_cast<std::size_t>(element_count(binding.sizes_of_slot(step.sources[access].slot))) *
                     step.element_bytes[access] * (step.sources[access].is_half() ? 2 : 1));
  }
  pointers_.resize(addresses_.size());
}

void BoundKernel::order_axes() {
  // A half steps over the other one along the last axis, and there may be less of a part than the launch goes over.
  const auto is_bound = [](const PlanSource& s) { return s.is_half() || s.is_part(); };
  if (step_->reduced == 0 || step_->may_fail() || std::ranges::any_of(step_->sources, is_bound)) return;
  order_reduced_axes(sizes_, step_->reduced, strides_);
}

/// Whether the steps along `outer` are those along `inner`, continued.
bool BoundKernel::steps_evenly(std::size_t outer, std::size_t inner) const {
  for (std::size_t first = 0; first < strides_.size(); first += sizes_.size())
    if (strides_[first + outer] != strides_[first + inner] * sizes_[inner]) return false;
  return true;
}

void BoundKernel::join_axes() {
  const auto is_reduced = [&](std::size_t d) { return (step_->reduced >> d & 1) != 0; };
  if (sizes_.size() < 2 || std::ranges::find(sizes_, 0) != sizes_.end()) return;
  const std::size_t last = sizes_.size() - 1;
  std::size_t inner = last;
  for (std::size_t d = last; d-- > 0;) {
    if (is_reduced(d) == is_reduced(inner) && sizes_[d] == 1) continue;
    if (is_reduced(d) != is_reduced(inner) || sizes_[inner] == 1 || !steps_evenly(d, inner)) {
      inner = d;
      continue;
    }
    if (inner == last && !is_reduced(d)) columns_ *= sizes_[d], rows_ /= sizes_[d];
    sizes_[inner] *= sizes_[d], sizes_[d] = 1;
  }
}

KernelLaunch BoundKernel::launch(const Run& run) {
  for (std::size_t i = 0; i < addresses_.size(); ++i)
    pointers_[i] = run.address(addresses_[i].slot, addresses_[i].byte_offset);
  const KernelLaunch launch{.pointers = pointers_.data(),
                            .sizes = sizes_.data(),
                            .strides = strides_.data(),
                            .offsets = offsets_.data(),
                            .scalars = run.scalars.data() + step_->scalars.first,
                            .row_begin = 0,
                            .row_end = rows_,
                            .column_begin = 0,
                            .column_end = columns_};
  if (checks_bounds()) [[unlikely]]
    check_buffers(launch, run);
  return launch;
}

std::pair<const std::byte*, std::int64_t> BoundKernel::operand_beside(std::uint32_t slot) const {
  const std::int64_t* strides = strides_.data();
  for (std::size_t a = 0; a < addresses_.size(); ++a, strides += sizes_.size()) {
    if (addresses_[a].slot == slot || pointers_[a] == nullptr || a == step_->stores[0]) continue;
    std::int64_t inside = 1;
    std::size_t axis = sizes_.size();
    while (axis > 0 && strides[axis - 1] == inside) inside *= sizes_[--axis];
    if (axis == 0) return {static_cast<const std::byte*>(pointers_[a]), step_->element_bytes[a]};
  }
  return {nullptr, 0};
}

void BoundKernel::move_pointers(std::uint32_t slot, std::ptrdiff_t bytes, Pointers& to) const {
  for (std::size_t a = 0; a < pointers_.size(); ++a)
    to[a] = static_cast<std::byte*>(pointers_[a]) + (addresses_[a].slot == slot ? bytes : 0);
}

void BoundKernel::check_buffers(const KernelLaunch& launch, const Run& run) const {
  const LaunchPoints points{sizes_, step_->reduced, 0, rows_, 0, columns_};
  for (std::size_t a = 0; a < addresses_.size(); ++a) {
    const std::uint32_t slot = addresses_[a].slot;
    if (launch.pointers[a] == nullptr) continue;
    const bool is_leaf = run.plan.slots[slot].kind == PlanSlot::Kind::leaf;
    const Storage* const leaf = is_leaf ? run.buffers.at(slot) : nullptr;
    if (is_leaf && leaf == nullptr) continue;
    if (step_->sources[a].is_part()) continue;  // there is less than the launch goes over
    Reach reach =
        reach_of(points, std::span(strides_).subspan(a * sizes_.size(), sizes_.size()), step_->element_bytes[a]);
    if (step_->may_fail() && reach.begin != reach.end) {
      const std::optional<std::int64_t> behind = step_->checks->reach(static_cast<std::uint16_t>(a), launch);
      if (!behind) continue;
      reach.extend(*behind * static_cast<std::int64_t>(step_->element_bytes[a]));
    }
    check_in_buffer(step_->name, a, launch.pointers[a], reach, leaf != nullptr ? leaf->data : run.data[slot],
                    leaf != nullptr ? leaf->bytes : bytes_[a]);
  }
}

/// The result as it was kept with the leaf, or is from now on.
bool BoundKernel::take_kept(Run& run, const KernelLaunch& whole) const {
  const std::size_t from = step_->stores[0] == 0 ? 1 : 0, to = step_->stores[0];
  static constexpr std::byte kLayout{};
  PackedKey key{&kLayout, whole.pointers[from], {static_cast<std::int64_t>(step_->element_bytes[to])}};
  key.numbers.insert(key.numbers.end(), sizes_.begin(), sizes_.end());
  key.numbers.insert(key.numbers.end(), strides_.begin(), strides_.end());
  Storage* const leaf = run.buffers[addresses_[from].slot];
  StoragePtr kept = PrepackedWeights::find(leaf, key, bytes_[to], [&](std::byte* made) {
    KernelLaunch once = whole;
    std::vector<void*> pointers(whole.pointers, whole.pointers + addresses_.size());
    pointers[to] = made, once.pointers = pointers.data();
    run_in_ranges(step_->executable->variant_for(once), once);
  });
  if (kept == nullptr) return false;
  const std::uint32_t slot = addresses_[to].slot;
  run.data[slot] = kept->data, run.buffers[slot] = kept.get();
  run.owners.resize(run.plan.slots.size());
  run.owners[slot] = std::move(kept);  // until the next run
  return true;
}

void BoundKernel::locate(std::span<const Node* const> records) {
  for (std::size_t i = 0; i < checked_.size(); ++i)
    checked_[i].where = records[step_->checks->nodes()[i].record]->where;
}

void BoundKernel::run(Run& run) {
  const bool is_empty = rows_ == 0 || columns_ == 0;
  if (!step_->may_fail()) return is_empty ? void() : run_whole(run, launch(run));
  LaunchFailure failure;
  KernelLaunch whole = launch(run);
  whole.failure = &failure;
  if (is_empty)
    step_->checks->check_empty(whole);
  else
    run_whole(run, whole);
  if (failure.failed != 0) [[unlikely]]
    step_->checks->throw_error(whole, checked_);
}

void BoundKernel::run_whole(Run& run, const KernelLaunch& whole) const {
  if (step_->is_of_weights && take_kept(run, whole)) return;
  if (!run.plan.capabilities.launches_on_caller) [[unlikely]] {
    const RunSite site{step_->name, step_->where};
    const RunSiteGuard guard(site);
    return step_->executable->launch(whole);
  }
  if (step_->reduced == 0 && !step_->may_fail() && JoinedRows::are_short(step_->element_bytes, sizes_)) {
    JoinedRows rows(step_->element_bytes, step_->stores, whole);
    if (rows.can_join())
      return rows.run([this](const KernelLaunch& launch) { run_map(step_->executable->variant_for(launch), launch); });
  }
  step_->executable->arranged(whole, [this](const KernelLaunch& arranged) { run_arranged(arranged); });
}

void BoundKernel::run_arranged(const KernelLaunch& whole) const {
  if (ns_ < kSerialNanoseconds) return step_->executable->variant_for(whole).launch(whole);
  const auto run_part = [this](const Executable& part, const KernelLaunch& launch) {
    if (part.can_split()) return run_in_blocks(part, launch);
    run_map(part.variant_for(launch), launch);
  };
  if (step_->executable->in_parts(whole, run_part)) return;
  const Executable& executable = step_->executable->variant_for(whole);
  if (executable.can_split() && is_worth_splitting(executable, whole)) return run_in_blocks(executable, whole);
  run_in_ranges(executable, whole);
}

void BoundKernel::run_in_rows(const Executable& executable, const KernelLaunch& whole, double row_ns) {
  parallel_for(whole.row_begin, whole.row_end, row_ns, [&](std::int64_t begin, std::int64_t end) {
    KernelLaunch part = whole;
    part.row_begin = begin, part.row_end = end;
    executable.launch(part);
  });
}
void BoundKernel::run_in_columns(const Executable& executable, const KernelLaunch& whole, double column_ns,
                                 std::int64_t granule) {
  parallel_for(
      0, whole.column_end, column_ns,
      [&](std::int64_t begin, std::int64_t end) {
        KernelLaunch part = whole;
        part.column_begin = begin, part.column_end = end;
        executable.launch(part);
      },
      granule);
}

/// A map whose rows or columns are not those of the kernel: it is a part of it, or its rows are joined.
void BoundKernel::run_map(const Executable& executable, const KernelLaunch& whole) const {
  double point_ns = ns_;
  for (const std::int64_t size : sizes_) point_ns /= static_cast<double>(size);
  if (whole.row_end >= 4 * thread_count() || whole.column_end < 2 * kColumnGranule)
    return run_in_rows(executable, whole, point_ns * static_cast<double>(whole.column_end));
  run_in_columns(executable, whole, point_ns * static_cast<double>(whole.row_end), kColumnGranule);
}

/// Ranges of rows or columns side by side.
void BoundKernel::run_in_ranges(const Executable& executable, const KernelLaunch& whole) const {
  const std::int64_t granule = step_->reduced != 0 ? kReducedColumnGranule : kColumnGranule;
  if (rows_ >= 4 * thread_count() || columns_ < 2 * granule)
    return run_in_rows(executable, whole, ns_ / static_cast<double>(rows_));
  run_in_columns(executable, whole, ns_ / static_cast<double>(columns_), granule);
}

/// Few rows that are long, or of few columns: columns are shared better by blocks, and stay in order.
bool BoundKernel::is_worth_splitting(const Executable& executable, const KernelLaunch& whole) const {
  constexpr std::int64_t kFewestBlocks = 4, kFewestOfColumns = 8, kFewColumns = 512, kMostBytes = 32 << 20;
  if (rows_ >= 4 * thread_count()) return false;
  const std::int64_t blocks = reduction_blocks();
  if (is_row_kernel()) return blocks >= kFewestBlocks;
  return thread_count() > 1 && blocks >= kFewestOfColumns * thread_count() && columns_ < kFewColumns * thread_count() &&
         blocks * static_cast<std::int64_t>(executable.block_bytes(whole)) <= kMostBytes;
}
bool BoundKernel::is_row_kernel() const { return (step_->reduced >> (sizes_.size() - 1) & 1) != 0; }

/// Blocks of the innermost reduced axis, for each position along the others.
std::int64_t BoundKernel::reduction_blocks() const {
  const std::int64_t length = is_row_kernel() ? kReductionBlock : kColumnBlock;
  const auto inner = static_cast<std::size_t>(std::bit_width(step_->reduced)) - 1;
  std::int64_t blocks = (sizes_[inner] + length - 1) / length;
  for (std::size_t d = 0; d < inner; ++d)
    if ((step_->reduced >> d & 1) != 0) blocks *= sizes_[d];
  return blocks;
}

/// Blocks of each row are reduced side by side, then merged in order. Same bits as launch().
void BoundKernel::run_in_blocks(const Executable& executable, KernelLaunch launch) const {
  const std::int64_t blocks = reduction_blocks();
  const StoragePtr partials(Storage::allocate(static_cast<std::size_t>(blocks) * executable.block_bytes(launch)));
  launch.partials = partials->data;
  const double block_ns = ns_ / static_cast<double>(rows_ * blocks);
  for (std::int64_t row = 0; row < rows_; ++row) {
    launch.row_begin = row, launch.row_end = row + 1;
    parallel_for(0, blocks, block_ns, [&](std::int64_t begin, std::int64_t end) {
      KernelLaunch part = launch;
      part.column_begin = begin, part.column_end = end;
      executable.partial(part);
    });
    launch.column_begin = 0, launch.column_end = is_row_kernel() ? blocks : columns_;
    executable.finish(launch);
  }
}

StepWork BoundKernel::work(std::uint32_t except) const {
  StepWork work;
  double points = 1;
  for (const std::int64_t size : sizes_) points *= static_cast<double>(size);
  work.operations = points * step_->operations_per_point;
  for (std::size_t access = 0; access < addresses_.size(); ++access) {
    if (addresses_[access].slot == except) continue;
    auto bytes = static_cast<double>(step_->element_bytes[access]);
    for (std::size_t d = 0; d < sizes_.size(); ++d)
      if (strides_[access * sizes_.size() + d] != 0) bytes *= static_cast<double>(sizes_[d]);
    work.bytes += bytes;
    const std::int64_t* const strides = &strides_[access * sizes_.size()];
    const std::int64_t inner = strides[sizes_.size() - 1];
    const bool lies_across = std::any_of(strides, strides + sizes_.size() - 1, [](std::int64_t s) { return s == 1; });
    if (inner != 0 && inner != 1 && lies_across) work.strided_bytes += bytes;
  }
  return work;
}

std::string BoundKernel::description() const { return step_->name + " " + to_string(sizes()); }

}  // namespace fermata
