// See plan_memory.h.
#include "passes/plan_memory.h"

#include <algorithm>

namespace fermata {

bool plan_memory(Program& program) {
  Plan& plan = *program.plan;
  std::vector<bool> met(plan.slots.size(), false);
  const auto touch = [&](std::uint32_t slot, std::uint32_t step) {
    PlanSlot& s = plan.slots[slot];
    if (!met[slot]) s.first_step = step, met[slot] = true;
    s.last_step = std::max(s.last_step, step);
  };
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    for (const PlanSource& s : plan.steps[i].sources) touch(s.slot, i);
    if (i + 1 < plan.steps.size() && plan.steps[i + 1].on_tiles)  // may run together
      for (const PlanSource& s : plan.steps[i + 1].sources) touch(s.slot, i);
    if (plan.steps[i].kind == PlanStep::Kind::call) touch(plan.steps[i].output.slot, i);
  }
  return true;
}

}  // namespace fermata
