// When a structure is compiled: at once where running it op by op would cost more than compiling, else when it is met
// for the second time, so that structures that come once do not cost milliseconds.
#pragma once

#include "fermata/inspect.h"
#include "runtime/plan_cache.h"
#include "runtime/walk.h"

namespace fermata {

/// Counts one sight of the entry; true if it should be compiled now.
bool should_compile(PlanEntry& entry, const Walk& walk);
/// Compiles once per entry, whoever comes first; others wait for it.
const Plan* compile_entry(PlanEntry& entry, const Walk& walk);

}  // namespace fermata
