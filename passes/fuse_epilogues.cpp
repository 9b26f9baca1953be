// See fuse_epilogues.h.
#include "passes/fuse_epilogues.h"

#include <algorithm>
#include <utility>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

/// Whether the result is read as it lies wherever it is read, and at all.
bool reads_as_it_lies(const KernelStep& kernel, std::uint32_t slot) {
  const auto of_slot = [&](const PlanSource& s) { return s.slot == slot; };
  return std::ranges::any_of(kernel.sources, of_slot) &&
         std::ranges::none_of(kernel.sources, [&](const PlanSource& s) { return of_slot(s) && !s.path.empty(); });
}

/// How those kernels of a call that run epilogues do so; none where they differ.
EpilogueForm form_of(const CallStep& call) {
  EpilogueForm form = EpilogueForm::none;
  const BackendCell* const cell = backend_cell(call.op, call.backend);
  if (cell == nullptr) return form;
  for (const KernelVariant& v : cell->variants) {
    if (v.epilogue == EpilogueForm::none) continue;
    if (form != EpilogueForm::none && form != v.epilogue) return EpilogueForm::none;
    form = v.epilogue;
  }
  return form;
}

bool is_by_rows(const KernelStep& kernel) {
  return kernel.reduced == 0 || kernel.reduced == 1u << (kernel.axes.size() - 1);
}

bool may_be_epilogue(const CallStep& call, const KernelStep& kernel) {
  return form_of(call) != EpilogueForm::none && reads_as_it_lies(kernel, call.output.slot) && is_by_rows(kernel);
}

}  // namespace

bool fuse_epilogues(Program& program) {
  std::vector<PlanStep> steps;
  bool changed = false;
  for (PlanStep& step : program.plan->steps) {
    auto* const kernel = std::get_if<KernelStep>(&step);
    auto* const call = steps.empty() ? nullptr : std::get_if<CallStep>(&steps.back());
    if (kernel == nullptr || call == nullptr || !may_be_epilogue(*call, *kernel)) {
      steps.push_back(std::move(step));
      continue;
    }
    const EpilogueForm form = form_of(*call);
    EpilogueStep together{std::move(*call), std::move(*kernel), form};
    steps.back() = std::move(together);
    changed = true;
  }
  program.plan->steps = std::move(steps);
  return changed;
}

}  // namespace fermata
