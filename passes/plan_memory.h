// Computes the lifetime of every buffer of a plan, so that binding can let buffers share memory, and which results may
// overwrite operands that are dead afterwards (docs/adr/016) or share memory with a temporary, such as the operand of
// an update.
//
// Needs: a lowered plan. Leaves behind: PlanSlot::first_step and last_step, Plan::overwrites and shared_places.
#pragma once

#include "passes/program.h"

namespace fermata {

bool plan_memory(Program& program);

}  // namespace fermata
