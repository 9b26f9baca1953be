// See bound_plan.h.
#include "runtime/bound_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/arena.h"
#include "runtime/backend_memory.h"
#include "runtime/bounds_check.h"
#include "runtime/cancellation.h"
#include "runtime/device_times.h"
#include "runtime/events.h"
#include "runtime/step_profile.h"
#include "runtime/steps/binding.h"

namespace fermata {

std::atomic<WatchStep> watch_step{nullptr};

namespace {

std::uint64_t scalar_of(const Node& n, std::uint16_t index) {
  return n.extra != nullptr && !n.extra->scalars.empty() ? n.extra->scalars[index] : n.scalar;
}

/// Calls f for each temporary that does not lie in the arena: it has a buffer of its own.
template <class F> void for_each_own(const Plan& plan, F&& f) {
  for (std::size_t i = 0; i < plan.slots.size(); ++i)
    if (plan.slots[i].kind == PlanSlot::Kind::temporary && (plan.slots[i].is_owned || plan.slots[i].is_given)) f(i);
}

}  // namespace

void BoundPlan::bind(const Plan& plan, std::span<const Node* const> records) {
  last_.reached = 0;
  scalars_.clear();
  for (const ScalarSource s : plan.scalars) scalars_.push_back(scalar_of(*records[s.record], s.index));
  if (plan_number_ == plan.number && geometry_.is_that_of(records)) [[likely]] {
    if (!has_calls_) return;
    for (BoundSteps::Entry& entry : steps_) std::visit([&](auto& step) { step.locate(records); }, entry.step);
    return;
  }
  plan_number_ = 0;  // until it is done
  infos_.clear();
  last_.recorded.clear();
  geometry_.remember(records);
  bind_slots(plan, records);
  bind_steps(plan, records);
  for (const SharedPlace& s : shared_places_) slot_bytes_[s.temporary] = 0;
  arena_bytes_ = place_temporaries(plan, slot_bytes_, slot_offset_);
  plan_number_ = plan.number;
}

void BoundPlan::bind_slots(const Plan& plan, std::span<const Node* const> records) {
  const auto sizes_of_slot = [&](std::uint32_t slot) { return records[plan.slots[slot].record]->sizes(); };
  output_slots_.assign(plan.output_slots.begin(), plan.output_slots.end());
  slot_bytes_.clear(), overwrites_.clear(), shared_places_.clear(), last_.data.clear();
  for (const PlanSlot& slot : plan.slots) {
    const Node& n = *records[slot.record];
    slot_bytes_.push_back(static_cast<std::size_t>(element_count(n.sizes())) * byte_size(n.dtype));
  }
  for (const Overwrite& o : plan.overwrites) {
    const std::span<const std::int64_t> sizes = records[o.domain]->sizes();
    if (std::ranges::equal(sizes, records[plan.leaf_records[o.leaf]]->sizes()) &&
        std::ranges::equal(sizes, sizes_of_slot(plan.output_slots[o.output])))
      overwrites_.push_back(o);
  }
  for (const SharedPlace& s : plan.shared_places)
    if (std::ranges::equal(sizes_of_slot(s.temporary), sizes_of_slot(s.output))) shared_places_.push_back(s);
}

void BoundPlan::bind_steps(const Plan& plan, std::span<const Node* const> records) {
  Binding binding{plan, records, slot_bytes_};
  steps_.start_over();
  std::size_t parts = 0;
  for (const PlanStep& step : plan.steps) {
    for_each_part(step, [&](const auto&) { ++parts; });
    std::visit([&](const auto& s) { s.bind(binding, steps_); }, step);
    ++binding.step;
  }
  steps_.finish();
  has_one_part_ = parts < 2;
  has_boxed_ = plan.has_boxed_calls();
  has_calls_ = std::ranges::any_of(plan.steps, [](const PlanStep& step) {
    const auto* const kernel = std::get_if<KernelStep>(&step);
    return kernel == nullptr || kernel->may_fail();
  });
}

void BoundPlan::run(const Plan& plan, std::span<const LeafBuffer> leaves, std::span<void* const> outputs,
                    std::span<const StoragePtr> owners) {
  last_.reached = 0;
  last_.owners.clear();
  const StoragePtr arena(arena_bytes_ != 0 ? allocate_on(plan.backend, arena_bytes_) : nullptr);
  std::vector<void*>& data = last_.data;
  data.resize(plan.slots.size());  // a position has no memory: it stays null
  for (std::size_t i = 0; i < plan.leaf_slots.size(); ++i) data[plan.leaf_slots[i]] = leaves[i].data;
  if (has_calls_ || checks_bounds()) {
    last_.buffers.assign(plan.slots.size(), nullptr);
    for (std::size_t i = 0; i < plan.leaf_slots.size(); ++i) last_.buffers[plan.leaf_slots[i]] = leaves[i].buffer;
  }
  for (std::size_t i = 0; i < plan.output_slots.size(); ++i) data[plan.output_slots[i]] = outputs[i];
  for (std::size_t i = 0; arena != nullptr && i < plan.slots.size(); ++i)  // there is none if all are empty
    if (plan.slots[i].kind == PlanSlot::Kind::temporary)
      data[i] = static_cast<std::byte*>(arena->data) + slot_offset_[i];
  if (has_boxed_) [[unlikely]]
    own_slots(plan, owners);
  for (const SharedPlace& s : shared_places_) data[s.temporary] = data[s.output];
  if (has_boxed_) [[unlikely]]
    return run_with_boxed(plan);
  RunRecorder* const recorder = has_one_part_ ? nullptr : run_recorder(plan.backend);
  if (recorder == nullptr) [[likely]]
    return run_steps(plan);
  const EventScope event([&] { return event_info(EventKind::call, "recorded steps of a device", {}); });
  last_.recorded.run(*recorder, data, scalars_, [&] { run_steps(plan); });
}

/// The buffers of what boxed calls read, but for what they are given later.
void BoundPlan::own_slots(const Plan& plan, std::span<const StoragePtr> owners) {
  last_.owners.resize(plan.slots.size());
  for (std::size_t i = 0; i < owners.size(); ++i) last_.buffers[plan.output_slots[i]] = owners[i].get();
  for_each_own(plan, [&](std::size_t i) {
    last_.data[i] = nullptr;
    if (plan.slots[i].is_given) return;
    last_.owners[i].reset(allocate_on(plan.backend, slot_bytes_[i]));
    last_.data[i] = last_.owners[i]->data, last_.buffers[i] = last_.owners[i].get();
  });
}

/// Nothing is recorded of a device: a kernel may do anything.
void BoundPlan::run_with_boxed(const Plan& plan) {
  struct DropTemporaries {
    std::vector<StoragePtr>& owners;
    const Plan& plan;
    ~DropTemporaries() {
      for_each_own(plan, [&](std::size_t i) { owners[i].reset(); });
    }
  } const drop{last_.owners, plan};
  run_steps(plan);
}

void BoundPlan::run_steps(const Plan& plan) {
  Run run{plan, last_.data, last_.buffers, last_.owners, scalars_};
  if (wants_events() || StepProfile::current() != nullptr || watch_step.load(std::memory_order_relaxed) != nullptr)
      [[unlikely]]
    return run_observed(run);
  if (wanted_stop != nullptr) [[unlikely]]
    return run_stoppable(run);
  for (BoundSteps::Entry& entry : steps_) {
    last_.reached = entry.plan_step + 1;
    std::visit([&](auto& step) { step.run(run); }, entry.step);
    if (!run.started.empty()) [[unlikely]]
      run.started.progress();
  }
}

/// A leaf that is written over would be lost, so a run that has begun to do that goes on.
void BoundPlan::run_stoppable(Run& run) {
  for (BoundSteps::Entry& entry : steps_) {
    const bool stoppable = overwrites_.empty() || entry.plan_step < overwrites_.front().step;
    const StoppableScope scope(stoppable);
    check_stop(stop_of_run);
    last_.reached = entry.plan_step + 1;
    std::visit([&](auto& step) { step.run(run); }, entry.step);
    run.started.progress();
  }
}

/// For the dispatch trace, for StepProfile and for events. A step runs after its first part was told of.
void BoundPlan::run_observed(Run& run) {
  StepProfile* const profile = StepProfile::current();
  const WatchStep watch = watch_step.load(std::memory_order_relaxed);
  const bool has_events = wants_events();
  if (has_events && infos_.empty()) describe_steps();
  std::size_t number = 0;
  std::int64_t begin = event_clock();  // a step begins when the one before ends: half as many looks at the clock
  for (BoundSteps::Entry& entry : steps_) {
    const StoppableScope scope(overwrites_.empty() || entry.plan_step < overwrites_.front().step);
    check_stop(stop_of_run);
    last_.reached = entry.plan_step + 1;
    const auto run_step = [&](auto& step) {
      const std::string what = profile != nullptr ? step.description() : std::string();
      if (profile != nullptr || watch != nullptr) begin = event_clock();
      const HeardEvent heard(has_events ? infos_[number] : nullptr);
      {
        const bool on_host = run.plan.capabilities.launches_on_caller;  // and timed by its clock
        const DeviceTimeScope on_device(run.plan.backend, has_events && !on_host ? infos_[number] : nullptr);
        step.run(run);
      }
      const std::int64_t end = event_clock();
      if (has_events) add_event({begin, end, infos_[number], 0});
      for (std::size_t call = 0; profile != nullptr && call < step.calls(); ++call)  // each took its part
        profile->add(what, static_cast<double>(end - begin) / static_cast<double>(step.calls()));
      begin = end;
      run.started.progress();
    };
    std::visit(
        [&](auto& step) {
          bool has_run = false;
          if (watch != nullptr)
            step.for_each_part([&](const StepPart& part, std::source_location where) {
              watch(part.name, run.plan.backend, where);
              if (!std::exchange(has_run, true)) run_step(step);
            });
          if (!has_run) run_step(step);
        },
        entry.step);
    ++number;
  }
}

bool BoundPlan::run_repeated(const Plan& plan, const Repetition& repetition) {
  if (has_calls_ || has_boxed_ || checks_bounds() || !plan.capabilities.launches_on_caller) return false;
  if (StepProfile::current() != nullptr || watch_step.load(std::memory_order_relaxed) != nullptr) return false;
  const auto last = std::prev(steps_.end());
  const auto* const kernel = std::get_if<BoundKernel>(&last->step);
  if (kernel == nullptr || kernel->step().is_of_weights) return false;
  for (auto entry = steps_.begin(); entry != last; ++entry) {
    const auto* const before = std::get_if<BoundKernel>(&entry->step);
    if (before == nullptr || !computes_the_same(*before, plan, repetition)) return false;
  }
  // What the other kernels make has a place of its own, also where it shared one with an output.
  std::vector<StoragePtr> buffers;
  const auto allocate = [&](std::size_t bytes) {
    return bytes == 0 ? nullptr : buffers.emplace_back(allocate_on(plan.backend, bytes))->data;
  };
  last_.reached = 0;
  last_.data.assign(plan.slots.size(), nullptr);
  for (std::size_t i = 0; i < plan.leaf_slots.size(); ++i) last_.data[plan.leaf_slots[i]] = repetition.leaves[i].data;
  if (void* const arena = allocate(arena_bytes_); arena != nullptr)
    for (std::size_t i = 0; i < plan.slots.size(); ++i)
      if (plan.slots[i].kind == PlanSlot::Kind::temporary)
        last_.data[i] = static_cast<std::byte*>(arena) + slot_offset_[i];
  for (const SharedPlace& s : shared_places_) last_.data[s.temporary] = allocate(slot_bytes_[s.output]);

  const EventInfo* const info = wants_events() ? describe_repeated(repetition.steps) : nullptr;
  std::int64_t begin = 0;
  const auto run_others = [&] {
    Run run{plan, last_.data, last_.buffers, last_.owners, scalars_};
    for (auto entry = steps_.begin(); entry != last; ++entry) std::get<BoundKernel>(entry->step).run(run);
    if (info != nullptr) begin = event_clock();
  };
  const HeardEvent heard(info);
  if (!kernel->run_repeated(plan, repetition, last_.data, scalars_, run_others)) return false;
  if (info != nullptr) add_event({begin, event_clock(), info, 0});
  return true;
}

bool BoundPlan::computes_the_same(const BoundKernel& kernel, const Plan& plan, const Repetition& repetition) const {
  if (kernel.step().is_of_weights) return false;
  return std::ranges::all_of(kernel.step().sources, [&](const PlanSource& source) {
    if (std::ranges::find(plan.output_slots, source.slot) != plan.output_slots.end()) return false;
    const auto leaf = std::ranges::find(plan.leaf_slots, source.slot);
    if (leaf == plan.leaf_slots.end()) return true;
    const auto number = static_cast<std::size_t>(leaf - plan.leaf_slots.begin());
    return repetition.leaves[number].bytes == 0 &&
           std::ranges::none_of(repetition.outputs, [&](const Repetition::Output& o) { return o.leaf == number; });
  });
}

const EventInfo* BoundPlan::describe_repeated(std::int64_t steps) {
  if (infos_.empty()) describe_steps();
  EventInfo info = *infos_.back();
  info.detail += fmt::format(", {} steps", steps);
  info.bytes *= static_cast<double>(steps), info.operations *= static_cast<double>(steps);
  info.strided_bytes *= static_cast<double>(steps);
  return keep_event_info(std::move(info));
}

void BoundPlan::describe_steps() {
  for (BoundSteps::Entry& entry : steps_)
    std::visit(
        [&]<class Step>(Step& step) {
          const StepWork work = step.work();
          EventInfo info{.kind = std::is_same_v<Step, BoundKernel> ? EventKind::kernel : EventKind::call,
                         .name = {},
                         .detail = step.description(),
                         .bytes = work.bytes,
                         .operations = work.operations,
                         .dtype = work.dtype,
                         .strided_bytes = work.strided_bytes,
                         .plan = plan_number_};
          step.for_each_part([&](const StepPart& part, std::source_location where) {
            if (info.calls.empty()) info.name = part.name, info.where = where;
            info.calls.push_back(where);
          });
          infos_.push_back(keep_event_info(std::move(info)));
        },
        entry.step);
}

}  // namespace fermata
