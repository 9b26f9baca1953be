// See bound_plan.h.
#include "runtime/bound_plan.h"

#include <algorithm>
#include <bit>

#include "ir/error.h"
#include "ir/view.h"
#include "runtime/device_memory.h"
#include "runtime/step_profile.h"
#include "runtime/thread_pool.h"

namespace fermata {

SelectCall select_call_step = nullptr;
std::atomic<WatchStep> watch_step{nullptr};

namespace {

constexpr std::size_t kArenaAlignment = 64;
constexpr std::int32_t kScalarView = -1;

/// Column ranges of a launch start at multiples of this many elements.
constexpr std::int64_t kColumnGranule = 1024;

void apply_insert(std::uint16_t mask, Shape& sizes, Shape& strides) {
  Shape new_sizes, new_strides;
  for (unsigned i = 0, from = 0; from < sizes.rank() || (mask >> i) != 0; ++i) {
    const bool inserted = (mask >> i & 1) != 0;
    new_sizes.push_back(inserted ? 1 : sizes[from]);
    new_strides.push_back(inserted ? 0 : strides[from]);
    from += inserted ? 0 : 1;
  }
  sizes = new_sizes, strides = new_strides;
}

std::uint64_t scalar_of(const Node& n, std::uint16_t index) {
  return n.extra != nullptr && !n.extra->scalars.empty() ? n.extra->scalars[index] : n.scalar;
}

/// What a bind reads of the records but scalars, and what their key says already: ranks, and the axes of reductions.
bool is_small(const Node& n) {
  return n.rank <= Node::kInlineRank && (n.extra == nullptr || (!n.extra->strided && n.extra->attributes.empty()));
}
void append_geometry(const Node& n, std::vector<std::int64_t>& to) {
  const auto append = [&](std::span<const std::int64_t> numbers) {
    to.insert(to.end(), numbers.begin(), numbers.end());
  };
  append(n.sizes());
  if (is_small(n)) return;
  to.push_back(static_cast<std::int64_t>(n.extra->attributes.size()));
  append(n.extra->attributes);
  if (!n.extra->strided) return;
  append({n.extra->strides.data(), n.extra->strides.rank()});
  to.push_back(n.extra->offset);
}

/// Whether what append_geometry() would append begins at `known`, which moves on behind it.
bool has_geometry(const Node& n, std::span<const std::int64_t>& known, std::vector<std::int64_t>& scratch) {
  std::span<const std::int64_t> wanted = n.sizes();
  if (!is_small(n)) [[unlikely]]
    scratch.clear(), append_geometry(n, scratch), wanted = scratch;
  if (wanted.size() > known.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != known[i]) return false;
  known = known.subspan(wanted.size());
  return true;
}

}  // namespace

/// Whether the last bind() was to this plan and these numbers; remembers them.
bool BoundPlan::is_bound_to(const Plan& plan, std::span<const Node* const> records) {
  if (plan_number_ == plan.number) {
    std::span<const std::int64_t> known = geometry_;
    bool same = true;
    for (const Node* const n : records) {
      same = has_geometry(*n, known, scratch_);
      if (!same) break;
    }
    if (same && known.empty()) [[likely]]
      return true;
  }
  plan_number_ = plan.number;
  geometry_.clear();
  for (const Node* const n : records) append_geometry(*n, geometry_);
  return false;
}

BoundPlan::View BoundPlan::resolve(const Plan& plan, const PlanSource& source) const {
  const PlanSlot& slot = plan.slots[source.slot];
  const Node& origin = *records_[slot.record];
  View v{Shape(origin.sizes()), {}, 0};
  if (slot.kind == PlanSlot::Kind::leaf && !origin.is_dense_leaf()) {
    v.strides = origin.extra->strides, v.offset = origin.extra->offset;
  } else if (slot.kind == PlanSlot::Kind::position) {
    Shape counted = v.sizes;
    for (unsigned i = 0; i < counted.rank(); ++i)
      if ((slot.mask >> i & 1) == 0) counted[i] = 1;
    v.strides = dense_strides(counted);
    for (unsigned i = 0; i < counted.rank(); ++i)
      if ((slot.mask >> i & 1) == 0) v.strides[i] = 0;
  } else {
    v.strides = dense_strides(v.sizes);
  }
  for (const PathStep& step : source.path) {
    switch (step.kind) {
      case PathStep::Kind::view: {
        const Node& view = *records_[step.record];
        static const std::vector<std::int64_t> kNone;
        if (!apply_view(view.op, view.extra != nullptr ? view.extra->attributes : kNone, Shape(view.sizes()), v.sizes,
                        v.strides, v.offset))
          throw_internal("a reshape was folded into a load that it cannot be folded into");
        break;
      }
      case PathStep::Kind::stretch: apply_stretch(records_[step.record]->sizes(), v.sizes, v.strides); break;
      case PathStep::Kind::insert: apply_insert(step.mask, v.sizes, v.strides); break;
    }
  }
  return v;
}

void BoundPlan::bind(const Plan& plan, std::span<const Node* const> records) {
  records_ = records;
  reached_ = 0;
  scalars_.clear();
  if (is_bound_to(plan, records)) {
    for (const PlanStep& step : plan.steps)
      for (const ScalarSource s : step.scalars) scalars_.push_back(scalar_of(*records_[s.record], s.index));
    locate_calls(plan);
    records_ = {};
    return;
  }
  plan_number_ = 0;  // until it is done
  recordings_.clear();
  steps_.clear(), numbers_.clear(), addresses_.clear(), views_.clear(), view_addresses_.clear();
  slot_bytes_.clear(), slot_data_.clear();
  output_slots_.assign(plan.output_slots.begin(), plan.output_slots.end());
  overwrites_.clear();
  for (const Overwrite& o : plan.overwrites) {
    const std::span<const std::int64_t> sizes = records[o.domain]->sizes();
    if (std::ranges::equal(sizes, records[plan.leaf_records[o.leaf]]->sizes()) &&
        std::ranges::equal(sizes, records[plan.slots[plan.output_slots[o.output]].record]->sizes()))
      overwrites_.push_back(o);
  }
  for (const PlanSlot& slot : plan.slots) {
    const Node& n = *records[slot.record];
    slot_bytes_.push_back(static_cast<std::size_t>(element_count(n.sizes())) * byte_size(n.dtype));
  }
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::Kind::kernel)
      bind_kernel(plan, step);
    else
      bind_call(plan, step);
    steps_.back().on_tiles = step.on_tiles && tiles_fit(plan, steps_.size() - 1);
    if (!step.on_row_blocks) continue;
    steps_.back().block_rows = rows_to_join(plan, steps_.size() - 1);
    if (steps_.back().block_rows == 0) continue;
    slot_bytes_[plan.steps[steps_.size() - 3].output.slot] = slot_bytes_[step.sources[0].slot] = 0;
  }
  shared_places_.clear();
  for (const SharedPlace& s : plan.shared_places)
    if (std::ranges::equal(records[plan.slots[s.temporary].record]->sizes(),
                           records[plan.slots[s.output].record]->sizes()))
      shared_places_.push_back(s), slot_bytes_[s.temporary] = 0;
  has_boxed_ = std::ranges::any_of(plan.steps, &PlanStep::is_boxed);
  place_temporaries(plan);
  make_views(plan);
  gather_calls(plan);
  locate_calls(plan);
  records_ = {};
  plan_number_ = plan.number;
}

void BoundPlan::locate_calls(const Plan& plan) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].kind == PlanStep::Kind::call) steps_[i].where = records_[plan.steps[i].record]->where;
}

void BoundPlan::bind_kernel(const Plan& plan, const PlanStep& step) {
  const std::span<const std::int64_t> domain = records_[step.record]->sizes();
  const auto rank = static_cast<std::uint32_t>(step.axes.size());
  Step bound{.pointers = static_cast<std::uint32_t>(addresses_.size()),
             .sizes = static_cast<std::uint32_t>(numbers_.size()),
             .strides = 0,
             .offsets = 0,
             .scalars = static_cast<std::uint32_t>(scalars_.size()),
             .rank = rank,
             .source_count = static_cast<std::uint32_t>(step.sources.size()),
             .rows = 1,
             .columns = 1,
             .first_view = 0,
             .kernel = nullptr,
             .where = {},
             .on_tiles = false,
             .calls = 1,
             .block_rows = 0};
  for (std::uint32_t d = 0; d < rank; ++d) {
    std::int64_t size = 1;  // an axis run of a 0-d domain is empty: first > last
    for (unsigned i = step.axes[d].first; i <= step.axes[d].last && i < domain.size(); ++i) size *= domain[i];
    numbers_.push_back(size);
    const bool reduced = (step.reduced >> d & 1) != 0;
    if (d + 1 == rank && !reduced)
      bound.columns = size;
    else if (!reduced)
      bound.rows *= size;
  }
  bound.strides = static_cast<std::uint32_t>(numbers_.size());
  for (const PlanSource& source : step.sources) {
    const View v = resolve(plan, source);
    for (const AxisRun run : step.axes) {
      // The innermost axis of a run that is longer than 1 has the run's stride: a stride of a size-1 axis means
      // nothing.
      std::int64_t stride = 0;
      for (int i = run.last; i >= run.first && i < static_cast<int>(domain.size()); --i) {
        stride = v.strides[static_cast<std::size_t>(i)];
        if (domain[static_cast<std::size_t>(i)] != 1) break;
      }
      numbers_.push_back(stride);
    }
    addresses_.push_back({source.slot, v.offset});
  }
  bound.offsets = static_cast<std::uint32_t>(numbers_.size());
  for (std::size_t i = 0; i < step.sources.size(); ++i) {
    Address& address = addresses_[bound.pointers + i];
    numbers_.push_back(address.byte_offset);
    address.byte_offset *= static_cast<std::int64_t>(step.element_bytes[i]);
  }
  for (const ScalarSource s : step.scalars) scalars_.push_back(scalar_of(*records_[s.record], s.index));
  steps_.push_back(bound);
}

void BoundPlan::bind_call(const Plan& plan, const PlanStep& step) {
  // Layout in numbers_: per operand and for the output [rank, sizes ..., strides ...], then attributes with a count.
  Step bound{};
  bound.calls = 1;
  bound.pointers = static_cast<std::uint32_t>(addresses_.size());
  bound.sizes = static_cast<std::uint32_t>(numbers_.size());
  bound.scalars = static_cast<std::uint32_t>(scalars_.size());
  bound.source_count = static_cast<std::uint32_t>(step.sources.size());
  const auto put = [&](const PlanSource& source, std::size_t bytes) {
    const View v = resolve(plan, source);
    numbers_.push_back(v.sizes.rank());
    numbers_.insert(numbers_.end(), v.sizes.begin(), v.sizes.end());
    numbers_.insert(numbers_.end(), v.strides.begin(), v.strides.end());
    addresses_.push_back({source.slot, v.offset * static_cast<std::int64_t>(bytes)});
  };
  for (std::size_t i = 0; i < step.sources.size(); ++i) put(step.sources[i], step.element_bytes[i]);
  put(step.output, byte_size(records_[step.record]->dtype));
  bound.offsets = static_cast<std::uint32_t>(numbers_.size());
  const std::vector<std::int64_t> attributes = attributes_of(*records_[step.record]);
  numbers_.push_back(static_cast<std::int64_t>(attributes.size()));
  numbers_.insert(numbers_.end(), attributes.begin(), attributes.end());
  for (const ScalarSource s : step.scalars) scalars_.push_back(scalar_of(*records_[s.record], s.index));
  steps_.push_back(bound);
}

void BoundPlan::place_temporaries(const Plan& plan) {
  // First fit by decreasing size over lifetimes: within a few percent of optimal for such plans, and quick.
  slot_offset_.assign(plan.slots.size(), 0);
  arena_bytes_ = 0;
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < plan.slots.size(); ++i)
    if (plan.slots[i].kind == PlanSlot::Kind::temporary && !plan.slots[i].is_owned && !plan.slots[i].is_given)
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return slot_bytes_[a] > slot_bytes_[b]; });
  std::vector<std::uint32_t> placed;
  for (const std::uint32_t i : order) {
    const PlanSlot& slot = plan.slots[i];
    const std::size_t bytes = (slot_bytes_[i] + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    std::size_t at = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::uint32_t j : placed) {
        const PlanSlot& other = plan.slots[j];
        if (other.last_step < slot.first_step || slot.last_step < other.first_step) continue;
        const std::size_t end =
            slot_offset_[j] + (slot_bytes_[j] + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
        if (at < end && slot_offset_[j] < at + bytes) at = end, moved = true;
      }
    }
    slot_offset_[i] = at;
    arena_bytes_ = std::max(arena_bytes_, at + bytes);
    placed.push_back(i);
  }
}

void BoundPlan::run(const Plan& plan, std::span<const LeafBuffer> leaves, std::span<void* const> outputs,
                    std::span<const StoragePtr> owners) {
  reached_ = 0;
  slot_owners_.clear();
  const StoragePtr arena(arena_bytes_ != 0 ? allocate_on(plan.backend, arena_bytes_) : nullptr);
  slot_data_.resize(plan.slots.size());  // a position has no memory: it stays null
  for (std::size_t i = 0; i < plan.leaf_slots.size(); ++i) slot_data_[plan.leaf_slots[i]] = leaves[i].data;
  if (!views_.empty()) {
    slot_buffers_.assign(plan.slots.size(), nullptr);
    for (std::size_t i = 0; i < plan.leaf_slots.size(); ++i) slot_buffers_[plan.leaf_slots[i]] = leaves[i].buffer;
  }
  for (std::size_t i = 0; i < plan.output_slots.size(); ++i) slot_data_[plan.output_slots[i]] = outputs[i];
  for (std::size_t i = 0; arena != nullptr && i < plan.slots.size(); ++i)  // there is none if all are empty
    if (plan.slots[i].kind == PlanSlot::Kind::temporary)
      slot_data_[i] = static_cast<std::byte*>(arena->data) + slot_offset_[i];
  if (has_boxed_) [[unlikely]]
    own_slots(plan, owners);
  for (const SharedPlace& s : shared_places_) slot_data_[s.temporary] = slot_data_[s.output];
  set_pointers();
  if (has_boxed_) [[unlikely]]
    return run_with_boxed(plan);
  RunRecorder* const recorder = plan.backend == BackendKey::cpu ? nullptr : run_recorder(plan.backend);
  if (recorder == nullptr || plan.steps.size() < 2) [[likely]]
    return run_steps(plan);
  run_recorded(plan, *recorder);
}

void BoundPlan::set_pointers() {
  pointers_.resize(addresses_.size());
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    const Address a = addresses_[i];
    pointers_[i] =
        slot_data_[a.slot] == nullptr ? nullptr : static_cast<std::byte*>(slot_data_[a.slot]) + a.byte_offset;
  }
}

/// Replays a run that was recorded with these addresses and scalars; records one that was seen before.
void BoundPlan::run_recorded(const Plan& plan, RunRecorder& recorder) {
  constexpr std::size_t kMostRecordings = 4;
  auto known = std::ranges::find_if(
      recordings_, [&](const Recording& r) { return r.addresses == slot_data_ && r.scalars == scalars_; });
  if (known == recordings_.end()) {
    if (recordings_.size() == kMostRecordings) recordings_.pop_back();
    recordings_.push_back({slot_data_, scalars_, 0, false, nullptr});
    known = recordings_.end() - 1;
  }
  std::rotate(recordings_.begin(), known, known + 1);
  Recording& mine = recordings_.front();
  if (mine.run == nullptr && ++mine.sights == 2 && !mine.reads && recorder.begin()) {
    try {
      run_steps(plan);
    } catch (...) {
      static_cast<void>(recorder.end());
      throw;
    }
    mine.run = recorder.end();
  }
  if (mine.run != nullptr) return mine.run->replay();
  const std::uint64_t before = device_reads;
  run_steps(plan);
  recordings_.front().reads = device_reads != before;
}

void BoundPlan::run_steps(const Plan& plan) {
  if (StepProfile* const profile = StepProfile::current()) [[unlikely]]
    return run_timed(plan, *profile);
  if (const WatchStep watch = watch_step.load(std::memory_order_relaxed)) [[unlikely]]
    return run_watched(plan, watch);
  for (std::size_t i = 0; i < plan.steps.size(); i = run_step(plan, i)) continue;
}

KernelLaunch BoundPlan::launch_of(const Step& b) const {
  return {.pointers = pointers_.data() + b.pointers,
          .sizes = numbers_.data() + b.sizes,
          .strides = numbers_.data() + b.strides,
          .offsets = numbers_.data() + b.offsets,
          .scalars = scalars_.data() + b.scalars,
          .row_begin = 0,
          .row_end = b.rows,
          .column_begin = 0,
          .column_end = b.columns};
}

void BoundPlan::run_kernel(const PlanStep& step, const Step& b) {
  const KernelLaunch launch = launch_of(b);
  double points = 1;
  for (std::uint32_t d = 0; d < b.rank; ++d) points *= static_cast<double>(launch.sizes[d]);
  const double ns = points * step.ns_per_point;
  if (b.rows == 0 || b.columns == 0) return;
  if (step.backend != BackendKey::cpu) [[unlikely]] {  // a device spreads a launch over its own threads
    const RunSite site{step.name, step.where};
    const RunSiteGuard guard(site);
    return step.executable->launch(launch);
  }
  if (ns < 2 * kSerialNanoseconds) return step.executable->suited_to(launch).launch(launch);
  const bool row_kernel = (step.reduced >> (b.rank - 1) & 1) != 0;
  const bool one_axis = std::popcount(static_cast<unsigned>(step.reduced)) == 1;
  if (row_kernel && one_axis && b.rows < 4 * thread_count() && step.executable->can_split() &&
      launch.sizes[b.rank - 1] >= 4 * kReductionBlock)
    return run_split(step, b, launch);
  const Executable& executable = step.executable->suited_to(launch);
  if (b.rows >= 4 * thread_count() || b.columns < 2 * kColumnGranule) {
    parallel_for(0, b.rows, ns / static_cast<double>(b.rows), [&](std::int64_t begin, std::int64_t end) {
      KernelLaunch part = launch;
      part.row_begin = begin, part.row_end = end;
      executable.launch(part);
    });
    return;
  }
  parallel_for(
      0, b.columns, ns / static_cast<double>(b.columns),
      [&](std::int64_t begin, std::int64_t end) {
        KernelLaunch part = launch;
        part.column_begin = begin, part.column_end = end;
        executable.launch(part);
      },
      kColumnGranule);
}

void BoundPlan::run_split(const PlanStep& step, const Step& b, KernelLaunch launch) {
  // Few long rows: blocks of each row are reduced side by side, then merged in order. Same bits as launch().
  const std::int64_t blocks = (launch.sizes[b.rank - 1] + kReductionBlock - 1) / kReductionBlock;
  const std::size_t state = step.executable->state_bytes();
  const StoragePtr partials(Storage::allocate(static_cast<std::size_t>(blocks) * state));
  launch.partials = partials->data;
  const Executable& executable = step.executable->suited_to(launch);
  for (std::int64_t row = 0; row < b.rows; ++row) {
    launch.row_begin = row, launch.row_end = row + 1;
    parallel_for(0, blocks, step.ns_per_point * kReductionBlock, [&](std::int64_t begin, std::int64_t end) {
      KernelLaunch part = launch;
      part.column_begin = begin, part.column_end = end;
      executable.partial(part);
    });
    launch.column_begin = 0, launch.column_end = blocks;
    executable.finish(launch);
  }
}

/// The views of call steps, but for their data: numbers_ and scalars_ stay where they are from here on.
void BoundPlan::make_views(const Plan& plan) {
  static constexpr std::int64_t kZeros[kMaxRank] = {};
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != PlanStep::Kind::call) continue;
    Step& b = steps_[i];
    const std::int64_t* numbers = numbers_.data() + b.sizes;
    std::vector<TensorView> sources;
    for (std::size_t k = 0; k <= step.sources.size(); ++k) {  // the last one is the output
      const DType dtype = k < step.sources.size() ? step.source_dtypes[k] : step.output_dtype;
      const auto rank = static_cast<std::uint8_t>(*numbers);
      sources.push_back({nullptr, dtype, rank, numbers + 1, numbers + 1 + rank});
      numbers += 1 + 2 * rank;
    }
    b.first_view = static_cast<std::uint32_t>(views_.size());
    const auto add = [&](std::size_t k) {
      views_.push_back(sources[k]);
      view_addresses_.push_back(static_cast<std::int32_t>(b.pointers + k));
    };
    for (const std::int32_t k : step.operand_order) {
      if (k >= 0) {
        add(static_cast<std::size_t>(k));
        continue;
      }
      // A host scalar: a 0-d view, broadcast to the output's shape.
      views_.push_back({scalars_.data() + b.scalars + (-1 - k), scalar_dtype(step.operand_dtype), sources.back().rank,
                        sources.back().sizes, kZeros});
      view_addresses_.push_back(kScalarView);
    }
    add(step.sources.size());
  }
}

namespace {

/// How many elements a plane of a result [N, C, ..] has where the tiles of an op are whole planes; else 0.
std::int64_t plane_of_tiles(Op op, std::span<const std::int64_t> result) {
  const bool planes = op == Op::convolution || op == Op::convolution_data_gradient;
  return planes ? element_count(result.subspan(2)) : 0;
}

}  // namespace

/// Whether the kernel's points are the elements of the result of the call before, which makes it by rows and columns.
bool BoundPlan::has_points_of_call(const Plan& plan, std::size_t step) const {
  const PlanStep& call = plan.steps[step - 1];
  const std::span<const std::int64_t> result = records_[call.record]->sizes(),
                                      domain = records_[plan.steps[step].record]->sizes();
  if (result.size() < 2 || !std::ranges::equal(result, domain) || element_count(result) == 0) return false;
  const std::int64_t* numbers = numbers_.data() + steps_[step - 1].sizes;
  for (std::size_t k = 0; k < call.sources.size(); ++k, numbers += 1 + 2 * *numbers)
    if (*numbers < 2) return false;  // with a vector among the operands the result may not be cut by rows and columns
  return true;
}

/// Whether the kernel may run on tiles of the result of the call before: its rows are those of the tiles or whole
/// planes of them, or all in one row whose parts may start where tiles do.
bool BoundPlan::tiles_fit(const Plan& plan, std::size_t step) const {
  if (!has_points_of_call(plan, step)) return false;
  const PlanStep& call = plan.steps[step - 1];
  const std::span<const std::int64_t> result = records_[call.record]->sizes();
  if (plan.backend != BackendKey::cpu) return plan.steps[step].reduced == 0;  // all of it at once
  const Step& b = steps_[step];
  const std::int64_t columns = result.back(), rows = element_count(result) / columns;
  if (plan.steps[step].reduced != 0) return b.rows == rows && numbers_[b.sizes + b.rank - 1] == columns;
  const std::int64_t plane = plane_of_tiles(call.op, result);
  const std::int64_t start = plane != 0 ? plane : columns;  // tiles start at multiples of it
  return (b.rows == rows && b.columns == columns) ||
         (plane != 0 && b.columns == plane && b.rows * plane == rows * columns) ||
         (b.rows == 1 && b.columns == rows * columns && start % kReductionLanes == 0);
}

/// A call, and the kernel step after it on every tile that the call tells of: all of it, or none.
void BoundPlan::run_on_tiles(const Plan& plan, std::size_t call) {
  if (plan.backend != BackendKey::cpu) return run_with_following(plan, call);
  const PlanStep& step = plan.steps[call + 1];
  const Step& b = steps_[call + 1];
  const TensorView& result = views_[steps_[call].first_view + plan.steps[call].operand_order.size()];
  const std::span<const std::int64_t> sizes(result.sizes, result.rank);
  const std::int64_t columns = sizes.back(), rows = element_count(sizes) / columns;
  const KernelLaunch launch = launch_of(b);
  const Executable& executable = step.executable->suited_to(launch);
  if (step.reduced != 0) columns_done_ = std::vector<std::atomic<std::int64_t>>(static_cast<std::size_t>(rows));
  std::atomic<std::int64_t> finished{0};
  const auto consume = [&](const ResultTile& tile) {
    const std::int64_t width = tile.column_end - tile.column_begin;
    finished.fetch_add((tile.row_end - tile.row_begin) * width, std::memory_order_relaxed);
    KernelLaunch part = launch;
    part.row_begin = tile.row_begin, part.row_end = tile.row_end;
    if (step.reduced != 0) {  // whoever finishes the last tile of some rows goes on with them
      auto& done = columns_done_[static_cast<std::size_t>(tile.row_begin)];
      if (width == columns || done.fetch_add(width, std::memory_order_acq_rel) + width == columns)
        executable.launch(part);
      return;
    }
    part.column_begin = tile.column_begin, part.column_end = tile.column_end;
    if (b.rows == rows) return executable.launch(part);
    if (b.rows != 1) {  // a row is a plane
      part.row_begin = tile.row_begin * columns / b.columns, part.row_end = tile.row_end * columns / b.columns;
      part.column_begin = 0, part.column_end = b.columns;
      return executable.launch(part);
    }
    part.row_begin = 0, part.row_end = 1;
    const std::int64_t at_once = width == columns ? tile.row_end - tile.row_begin : 1;
    for (std::int64_t row = tile.row_begin; row < tile.row_end; row += at_once) {
      part.column_begin = row * columns + tile.column_begin;
      part.column_end = part.column_begin + at_once * columns - (columns - width);
      executable.launch(part);
    }
  };
  const TileConsumer consumer(consume);
  run_call(plan.steps[call], steps_[call], &consumer);
  if (finished.load() != rows * columns) run_kernel(step, b);
}

/// A call on a device, which may do the kernel step after it as well where nothing else reads what it makes.
void BoundPlan::run_with_following(const Plan& plan, std::size_t call) {
  const PlanSlot& slot = plan.slots[plan.steps[call].output.slot];
  const KernelLaunch launch = launch_of(steps_[call + 1]);
  FollowingKernel next{*plan.steps[call + 1].executable, launch};
  const bool alone = slot.kind == PlanSlot::Kind::temporary && slot.last_step <= call + 1;
  struct Guard {
    explicit Guard(FollowingKernel* k) { following_kernel = k; }
    ~Guard() { following_kernel = nullptr; }
  };
  {
    const Guard guard(alone ? &next : nullptr);
    run_call(plan.steps[call], steps_[call], nullptr);
  }
  if (!next.done) run_kernel(plan.steps[call + 1], steps_[call + 1]);
}

/// The arguments at hand, and the kernel for them if there is none yet.
CallArgs BoundPlan::prepare_call(const PlanStep& step, Step& b, const TileConsumer* tiles) {
  const std::size_t operands = step.operand_order.size() * b.calls;
  for (std::size_t i = b.first_view; i < b.first_view + operands + b.calls; ++i) {
    if (view_addresses_[i] == kScalarView) continue;
    const auto address = static_cast<std::size_t>(view_addresses_[i]);
    views_[i].data = pointers_[address], views_[i].buffer = slot_buffers_[addresses_[address].slot];
  }
  const std::int64_t* attributes = numbers_.data() + b.offsets;
  const CallArgs args{.op = step.op,
                      .inputs = {views_.data() + b.first_view, operands},
                      .outputs = {views_.data() + b.first_view + operands, b.calls},
                      .attributes = {attributes + 1, static_cast<std::size_t>(*attributes)},
                      .scalars = {scalars_.data() + b.scalars, step.scalars.size()},
                      .where = b.where,
                      .tiles = tiles,
                      .context = step.context};
  if (b.kernel == nullptr) {  // for one call: several give the bits that each gives by itself
    CallArgs one = args;
    one.inputs = args.inputs.first(step.operand_order.size()), one.outputs = args.outputs.first(1);
    b.kernel = select_call_step(step, one);
  }
  return args;
}

void BoundPlan::run_call(const PlanStep& step, Step& b, const TileConsumer* tiles) {
  if (step.is_boxed) [[unlikely]]
    return run_boxed(step, b);
  const CallArgs args = prepare_call(step, b, tiles);
  if (step.backend == BackendKey::cpu) [[likely]]
    return b.kernel(args);
  const RunSite site{step.name, b.where};
  const RunSiteGuard guard(site);
  b.kernel(args);
}

}  // namespace fermata
