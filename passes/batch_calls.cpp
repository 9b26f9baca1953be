// See batch_calls.h.
#include "passes/batch_calls.h"

#include <algorithm>
#include <utility>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

/// Whether there are kernels, and all that may be chosen do several calls at once.
bool runs_in_batches(const CallStep& step) {
  const BackendCell* const cell = backend_cell(step.op, step.backend);
  if (step.scalars.count != 0 || cell == nullptr) return false;
  const auto may_be_chosen = [&](const KernelVariant& v) {
    return v.call != nullptr && v.dtypes.has(step.operand_dtype);
  };
  return std::ranges::any_of(cell->variants, may_be_chosen) &&
         std::ranges::all_of(cell->variants, [&](const KernelVariant& v) { return v.in_batches || !may_be_chosen(v); });
}

bool same_call(const CallStep& a, const CallStep& b) {
  return a.op == b.op && a.operand_dtype == b.operand_dtype && a.output_dtype == b.output_dtype &&
         a.source_dtypes == b.source_dtypes && a.operands == b.operands;
}

/// Whether a call is like those of a batch, and reads nothing that they make.
bool belongs_to(const CallStep& call, const std::vector<CallStep>& batch) {
  return same_call(batch.front(), call) && std::ranges::none_of(batch, [&](const CallStep& before) {
           return std::ranges::any_of(call.sources, [&](const PlanSource& s) { return s.slot == before.output.slot; });
         });
}

}  // namespace

bool batch_calls(Program& program) {
  std::vector<PlanStep> steps;
  std::vector<CallStep> batch;
  bool changed = false;
  const auto finish = [&] {
    if (batch.size() == 1) {
      steps.push_back(std::move(batch.front()));
    } else if (!batch.empty()) {
      steps.push_back(CallBatchStep{std::move(batch)});
      changed = true;
    }
    batch.clear();
  };
  for (PlanStep& step : program.plan->steps) {
    auto* const call = std::get_if<CallStep>(&step);
    const bool may_join = call != nullptr && runs_in_batches(*call);
    if (!may_join || (!batch.empty() && !belongs_to(*call, batch))) finish();
    if (may_join)
      batch.push_back(std::move(*call));
    else
      steps.push_back(std::move(step));
  }
  finish();
  program.plan->steps = std::move(steps);
  return changed;
}

}  // namespace fermata
