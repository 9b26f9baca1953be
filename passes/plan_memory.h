// When every temporary of a plan is alive, so that binding can let buffers share memory.
//
// Needs: a lowered plan. Leaves behind: PlanSlot::first_step and last_step.
#pragma once

#include "passes/program.h"

namespace fermata {

bool plan_memory(Program& program);

}  // namespace fermata
