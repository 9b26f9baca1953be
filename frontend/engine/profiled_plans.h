// The programs of the plans that run while somebody profiles: what reports show of them.
#pragma once

#include <cstdint>
#include <map>

#include "ir/graph.h"
#include "ir/key_set.h"
#include "runtime/function_ref.h"

namespace fermata {

struct ProfiledPlan {
  Graph graph;
  BackendKey backend{};
};

/// Remembers the program of a plan, which `make` gives, when it first runs; the first hundreds of plans.
void note_profiled_plan(std::uint64_t number, FunctionRef<ProfiledPlan()> make);
std::map<std::uint64_t, ProfiledPlan> profiled_plans();

}  // namespace fermata
