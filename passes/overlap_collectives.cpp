// See overlap_collectives.h.
#include "passes/overlap_collectives.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ir/op_traits.h"

namespace fermata {
namespace {

/// A call with an effect of a built-in op: its last operand may be one that is only waited for.
bool is_collective(const PlanStep& step) {
  const auto* const call = std::get_if<CallStep>(&step);
  return call != nullptr && traits(call->op).effect == Effect::effect;
}

class Overlap {
 public:
  explicit Overlap(Plan& plan) : plan_(plan), writer_(plan.slots.size(), kNone), step_of_(plan.slots.size(), kNone) {}

  bool run() {
    if (std::ranges::none_of(plan_.steps, is_collective)) return false;
    find_writers();
    find_starts();
    place();
    plan_.steps = std::move(placed_);
    return true;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  /// A collective of the plan: the step after which it may start, counting the steps that are none.
  struct Collective {
    std::size_t step;
    std::size_t after;  // 0: at the beginning
    bool is_on_its_way = false;
  };

  void find_writers() {
    std::size_t others = 0;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      if (is_collective(step)) {
        writer_[std::get<CallStep>(step).output.slot] = collectives_.size();
        collectives_.push_back({i, others});
        continue;
      }
      ++others;
      for_each_part(
          step, [&](const auto& part) { for_each_result(part, [&](std::uint32_t slot) { step_of_[slot] = others; }); });
    }
  }
  template <class F> static void for_each_result(const CallStep& call, F&& f) { f(call.output.slot); }
  template <class F> static void for_each_result(const KernelStep& kernel, F&& f) {
    for (const std::uint16_t store : kernel.stores) f(kernel.sources[store].slot);
  }

  void find_starts() {
    std::size_t earliest = 0;  // of the one before
    for (Collective& c : collectives_) {
      auto& call = std::get<CallStep>(plan_.steps[c.step]);
      bool reads_collective = false;
      for (std::size_t k = 0; k < call.operands.size(); ++k) {
        const std::uint32_t slot = call.sources[k].slot;
        if (step_of_[slot] != kNone) earliest = std::max(earliest, step_of_[slot]);
        if (k < traits(call.op).least_operands && writer_[slot] != kNone) reads_collective = true;
      }
      drop_what_is_only_waited_for(call);
      // Earlier, the wait would come too soon.
      if (reads_collective) earliest = std::max(earliest, c.after);
      c.after = earliest;
    }
  }

  static void drop_what_is_only_waited_for(CallStep& call) {
    const std::size_t kept = traits(call.op).least_operands;
    if (call.operands.size() <= kept) return;
    call.operands.resize(kept), call.sources.resize(kept);
    call.source_dtypes.resize(kept), call.element_bytes.resize(kept);
  }

  void place() {
    std::vector<PlanStep*> rest;
    for (PlanStep& step : plan_.steps)
      if (!is_collective(step)) rest.push_back(&step);
    std::size_t next = 0;
    for (std::size_t others = 0;; ++others) {
      const std::size_t before = next;
      for (; next < collectives_.size() && collectives_[next].after <= others; ++next) start(next);
      if (next == collectives_.size() && before != next) put_off_waits(std::span(rest).subspan(others));
      if (others == rest.size()) break;
      PlanStep& step = *rest[others];
      for_each_part(step, [&](const auto& part) { for_each_slot(part, [&](std::uint32_t slot) { wait_for(slot); }); });
      placed_.push_back(std::move(step));
    }
    for (std::size_t c = 0; c < collectives_.size(); ++c) wait(c);
    join_neighbors();
  }

  /// After all collectives have started, steps that need none of them come first, then those that need the ones
  /// started first: usually the parameters whose gradients come last are updated first. Earlier steps
  /// keep their order, in which collectives start.
  void put_off_waits(std::span<PlanStep*> steps) {
    std::vector<std::size_t> of_result(plan_.slots.size()), of_slot(plan_.slots.size());  // the last one needed, from 1
    for (std::size_t c = 0; c < collectives_.size(); ++c)
      if (collectives_[c].is_on_its_way)
        of_result[std::get<CallStep>(plan_.steps[collectives_[c].step]).output.slot] = c + 1;
    std::vector<std::pair<std::size_t, PlanStep*>> sorted;
    for (PlanStep* const step : steps) {
      std::size_t needs = 0;
      const auto each_slot = [&](auto&& f) { for_each_part(*step, [&](const auto& part) { for_each_slot(part, f); }); };
      const auto each_result = [&](auto&& f) {
        for_each_part(*step, [&](const auto& part) { for_each_result(part, f); });
      };
      each_slot([&](std::uint32_t slot) { needs = std::max(needs, of_result[slot]); });
      each_result([&](std::uint32_t slot) { needs = std::max(needs, of_slot[slot]); });  // after its readers
      each_slot([&](std::uint32_t slot) { of_slot[slot] = std::max(of_slot[slot], needs); });
      each_result([&](std::uint32_t slot) { of_result[slot] = needs; });
      sorted.emplace_back(needs, step);
    }
    std::ranges::stable_sort(sorted, {}, [](const auto& s) { return s.first; });
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = sorted[i].second;
  }

  void start(std::size_t number) {
    auto& call = std::get<CallStep>(plan_.steps[collectives_[number].step]);
    for (const PlanSource& s : call.sources) wait_for(s.slot);
    placed_.emplace_back(StartStep{call, static_cast<std::uint32_t>(number)});
    collectives_[number].is_on_its_way = true;
  }
  void wait_for(std::uint32_t slot) {
    if (writer_[slot] != kNone) wait(writer_[slot]);
  }
  void wait(std::size_t number) {
    if (!std::exchange(collectives_[number].is_on_its_way, false)) return;
    WaitStep step{std::get<CallStep>(plan_.steps[collectives_[number].step]), static_cast<std::uint32_t>(number)};
    step.call.name = "wait for " + step.call.name;
    placed_.emplace_back(std::move(step));
  }

  /// A collective that is waited for immediately becomes an ordinary call.
  void join_neighbors() {
    std::vector<PlanStep> joined;
    for (PlanStep& step : placed_) {
      const auto* const wait = std::get_if<WaitStep>(&step);
      auto* const start = wait == nullptr || joined.empty() ? nullptr : std::get_if<StartStep>(&joined.back());
      if (start != nullptr && start->number == wait->number) {
        CallStep call = std::move(start->call);
        joined.back() = std::move(call);
      } else {
        joined.push_back(std::move(step));
      }
    }
    placed_ = std::move(joined);
  }

  Plan& plan_;
  std::vector<std::size_t> writer_;   // by slot: the collective that writes it
  std::vector<std::size_t> step_of_;  // by slot: the other step that does, counted from 1
  std::vector<Collective> collectives_;
  std::vector<PlanStep> placed_;
};

}  // namespace

bool overlap_collectives(Program& program) { return Overlap(*program.plan).run(); }

}  // namespace fermata
