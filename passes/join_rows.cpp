// See join_rows.h.
#include "passes/join_rows.h"

#include <algorithm>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

bool works_by_rows(const PlanStep& call) {
  if (call.kind != PlanStep::Kind::call) return false;
  const BackendCell* cell = backend_cell(call.op, call.backend);
  return cell != nullptr && std::ranges::any_of(cell->variants, &KernelVariant::by_rows) &&
         call.operand_order == std::vector<std::int32_t>{0, 1};
}

bool touches(const PlanStep& step, std::uint32_t slot) {
  return (step.kind == PlanStep::Kind::call && step.output.slot == slot) ||
         std::ranges::any_of(step.sources, [&](const PlanSource& s) { return s.slot == slot; });
}

/// Whether a slot is a temporary that only two steps touch, one after the other.
bool is_between(const Plan& plan, std::uint32_t slot, std::size_t step) {
  if (plan.slots[slot].kind != PlanSlot::Kind::temporary || !touches(plan.steps[step], slot)) return false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (i != step && i != step + 1 && touches(plan.steps[i], slot)) return false;
  return true;
}

}  // namespace

bool join_rows(Program& program) {
  Plan& plan = *program.plan;
  bool changed = false;
  if (program.backend != BackendKey::cpu) return changed;
  for (std::size_t i = 2; i < plan.steps.size(); ++i) {
    PlanStep& last = plan.steps[i];
    const PlanStep &kernel = plan.steps[i - 1], &first = plan.steps[i - 2];
    if (!works_by_rows(last) || !works_by_rows(first) || !kernel.on_tiles || first.on_row_blocks) continue;
    const PlanSource &left = last.sources[0], &right = last.sources[1];
    if (!left.path.empty() || right.slot == left.slot || last.source_dtypes[0] != last.operand_dtype) continue;
    if (!is_between(plan, first.output.slot, i - 2) || !is_between(plan, left.slot, i - 1)) continue;
    last.on_row_blocks = changed = true;
  }
  return changed;
}

}  // namespace fermata
