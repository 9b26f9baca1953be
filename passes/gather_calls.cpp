// See gather_calls.h.
#include "passes/gather_calls.h"

#include <algorithm>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

/// Whether all kernels that may be chosen do several calls at once.
bool does_several(const PlanStep& step) {
  if (step.kind != PlanStep::Kind::call || step.on_row_blocks || !step.scalars.empty()) return false;
  const BackendCell* cell = backend_cell(step.op, step.backend);
  return cell != nullptr && std::ranges::all_of(cell->variants, [&](const KernelVariant& v) {
           return v.several || v.call == nullptr || !v.dtypes.has(step.operand_dtype);
         });
}

bool same_call(const PlanStep& a, const PlanStep& b) {
  return a.op == b.op && a.operand_dtype == b.operand_dtype && a.output_dtype == b.output_dtype &&
         a.source_dtypes == b.source_dtypes && a.operand_order == b.operand_order;
}

}  // namespace

bool gather_calls(Program& program) {
  Plan& plan = *program.plan;
  if (program.backend != BackendKey::cpu) return false;
  const auto joins = [&](std::size_t i) {  // the steps after it
    return (i + 1 < plan.steps.size() && plan.steps[i + 1].on_tiles) ||
           (i + 2 < plan.steps.size() && plan.steps[i + 2].on_row_blocks);
  };
  bool changed = false;
  std::vector<bool> made(plan.slots.size(), false);  // by the calls gathered so far
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    PlanStep& step = plan.steps[i];
    const auto depends = [&](const PlanSource& s) { return made[s.slot]; };
    const bool alone = !does_several(step) || joins(i);
    if (!alone && i > 0 && (plan.steps[i - 1].beside || does_several(plan.steps[i - 1])) && !joins(i - 1) &&
        same_call(plan.steps[i - 1], step) && std::ranges::none_of(step.sources, depends))
      step.beside = changed = true;
    else
      made.assign(plan.slots.size(), false);
    if (step.kind == PlanStep::Kind::call) made[step.output.slot] = true;
  }
  return changed;
}

}  // namespace fermata
