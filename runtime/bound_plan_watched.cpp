// Runs of a BoundPlan that somebody watches: the dispatch trace, told of every step, and profiles, which time them.
#include <chrono>
#include <string>

#include "runtime/bound_plan.h"
#include "runtime/step_profile.h"

namespace fermata {

void BoundPlan::run_watched(const Plan& plan, WatchStep watch) {
  for (std::size_t i = 0; i < plan.steps.size();) {
    watch(plan.steps[i].name, plan.backend,
          plan.steps[i].kind == PlanStep::Kind::call ? steps_[i].where : plan.steps[i].where);
    const std::size_t next = run_step(plan, i);
    while (++i < next) watch(plan.steps[i].name, plan.backend, plan.steps[i].where);
  }
}

/// Gives the number of the step that comes next.
std::size_t BoundPlan::run_step(const Plan& plan, std::size_t i) {
  reached_ = i + 1;
  if (plan.steps[i].kind == PlanStep::Kind::kernel)
    run_kernel(plan.steps[i], steps_[i]);
  else if (i + 2 < plan.steps.size() && steps_[i + 2].block_rows != 0)
    return run_on_row_blocks(plan, i), i + 3;
  else if (i + 1 < plan.steps.size() && steps_[i + 1].on_tiles)
    return run_on_tiles(plan, i), i + 2;
  else
    run_call(plan.steps[i], steps_[i], nullptr);
  return i + steps_[i].calls;
}

void BoundPlan::run_timed(const Plan& plan, StepProfile& profile) {
  using Clock = std::chrono::steady_clock;
  for (std::size_t i = 0; i < plan.steps.size();) {
    std::string what = description(plan, i);
    const auto start = Clock::now();
    const std::size_t next = run_step(plan, i);
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    const std::uint32_t calls = steps_[i].calls;  // if there are several, each took its part
    if (calls == 1 && next > i + 1)
      what += " with " + std::string(plan.steps[i + 1].name) + (next == i + 2 ? " on its tiles" : "");
    if (calls == 1 && next > i + 2) what += " and " + description(plan, i + 2) + " on blocks of its rows";
    for (std::uint32_t call = 0; call < calls; ++call) profile.add(what, ns / calls);
    i = next;
  }
}

/// The name of a step and what it works on: the sizes of operands and result, or of a kernel's domain.
std::string BoundPlan::description(const Plan& plan, std::size_t i) const {
  const auto sizes = [](const std::int64_t* of, std::size_t rank) {
    std::string text = "[";
    for (std::size_t axis = 0; axis < rank; ++axis) text += (axis == 0 ? "" : ", ") + std::to_string(of[axis]);
    return text + "]";
  };
  const PlanStep& step = plan.steps[i];
  const Step& b = steps_[i];
  std::string text(step.name);
  if (step.kind == PlanStep::Kind::kernel) return text + " " + sizes(numbers_.data() + b.sizes, b.rank);
  for (std::size_t k = 0; k <= step.operand_order.size(); ++k) {  // several calls have all their inputs first
    const TensorView& view = views_[b.first_view + (k == step.operand_order.size() ? k * b.calls : k)];
    text += (k == step.operand_order.size() ? " -> " : " ") + sizes(view.sizes, view.rank);
  }
  return text;
}

}  // namespace fermata
