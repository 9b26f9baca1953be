// See finish_tiles.h.
#include "passes/finish_tiles.h"

#include <algorithm>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

/// Whether the result is read as it lies wherever it is read, and at all.
bool reads_as_it_lies(const PlanStep& kernel, std::uint32_t slot) {
  const auto of_slot = [&](const PlanSource& s) { return s.slot == slot; };
  return std::ranges::any_of(kernel.sources, of_slot) &&
         std::ranges::none_of(kernel.sources, [&](const PlanSource& s) { return of_slot(s) && !s.path.empty(); });
}

bool makes_tiles(const PlanStep& call) {
  const BackendCell* cell = backend_cell(call.op, call.backend);
  return cell != nullptr && std::ranges::any_of(cell->variants, &KernelVariant::in_tiles);
}

bool is_by_rows(const PlanStep& kernel) {
  return kernel.reduced == 0 || kernel.reduced == 1u << (kernel.axes.size() - 1);
}

}  // namespace

bool finish_tiles(Program& program) {
  std::vector<PlanStep>& steps = program.plan->steps;
  bool changed = false;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const PlanStep& before = steps[i - 1];
    if (before.kind != PlanStep::Kind::call || steps[i].kind != PlanStep::Kind::kernel || !makes_tiles(before))
      continue;
    if (!reads_as_it_lies(steps[i], before.output.slot) || !is_by_rows(steps[i])) continue;
    steps[i].on_tiles = changed = true;
  }
  return changed;
}

}  // namespace fermata
