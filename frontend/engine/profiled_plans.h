// Programs of the plans that run during profiling, for reports.
#pragma once

#include <cstdint>
#include <map>

#include "ir/graph.h"
#include "ir/key_set.h"
#include "passes/plan_form.h"
#include "runtime/function_ref.h"

namespace fermata {

struct ProfiledPlan {
  Graph graph;
  BackendKey backend{};
  PlanForm form = PlanForm::fused;
};

/// Stores the program of a plan, as returned by `make`, on its first run; only for the first hundreds of plans.
void note_profiled_plan(std::uint64_t number, FunctionRef<ProfiledPlan()> make);
std::map<std::uint64_t, ProfiledPlan> profiled_plans();

}  // namespace fermata
