// When a structure is compiled: at once where running it op by op would cost more than compiling; else in the background, once it
// has come often enough for compiling to pay. Until then it is played op by op: the bits are the same.
#pragma once

#include "fermata/inspect.h"
#include "runtime/plan_cache.h"
#include "runtime/walk.h"

namespace fermata {

/// Counts one sight of an entry that has no plan, and compiles it if that is due now. Null: play it op by op.
const Plan* plan_if_due(const PlanEntryPtr& entry, const Walk& walk);
/// Compiles once per entry, whoever comes first; others wait for it.
const Plan* compile_entry(PlanEntry& entry, const Walk& walk);

}  // namespace fermata
