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
  return form_of(call) != EpilogueForm::none && !kernel.may_fail() && reads_as_it_lies(kernel, call.output.slot) &&
         is_by_rows(kernel);
}

bool reads(const KernelStep& kernel, std::uint32_t slot) {
  return std::ranges::any_of(kernel.sources, [&](const PlanSource& s) { return s.slot == slot; });
}

/// The call whose result a kernel goes on with, as the last step: kernels behind it that have nothing to do with it (a
/// factor for each channel, say) go before it. Null where something else stands between them.
CallStep* call_before(std::vector<PlanStep>& steps, const KernelStep& kernel) {
  constexpr std::size_t kMostBetween = 8;
  for (std::size_t at = steps.size(); at-- > 0 && steps.size() - at <= kMostBetween;) {
    auto* const call = std::get_if<CallStep>(&steps[at]);
    if (call != nullptr && may_be_epilogue(*call, kernel)) {
      const std::uint32_t result = call->output.slot;
      const bool is_free = std::all_of(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1, steps.end(),
                                       [&](const PlanStep& s) { return !reads(std::get<KernelStep>(s), result); });
      if (!is_free) return nullptr;
      std::rotate(steps.begin() + static_cast<std::ptrdiff_t>(at), steps.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                  steps.end());
      return &std::get<CallStep>(steps.back());
    }
    if (!std::holds_alternative<KernelStep>(steps[at])) return nullptr;
  }
  return nullptr;
}

}  // namespace

bool fuse_epilogues(Program& program) {
  std::vector<PlanStep> steps;
  bool changed = false;
  for (PlanStep& step : program.plan->steps) {
    auto* const kernel = std::get_if<KernelStep>(&step);
    auto* const call = kernel == nullptr ? nullptr : call_before(steps, *kernel);
    if (call == nullptr) {
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
