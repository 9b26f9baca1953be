// When every buffer of a plan is alive, so that binding can let buffers share memory; and which results may be
// written over operands that nobody needs afterwards (docs/adr/016), or share their place with a temporary.
//
// Needs: a lowered plan. Leaves behind: PlanSlot::first_step and last_step, Plan::overwrites and shared_places.
#pragma once

#include "passes/program.h"

namespace fermata {

bool plan_memory(Program& program);

}  // namespace fermata
