// Splits each collective into a step that starts it, as soon as its operand is computed, and a step that waits for it,
// before the first step that reads its result. The steps in between run in the meantime.
//
// They start in the order of the program, which is the same on all ranks. Steps after the last start are sorted
// by the collective that they wait for. Runs after lower and the passes that merge steps: no pass may reorder steps
// afterwards. Collectives that nothing can overlap with are not split.
#pragma once

#include "passes/program.h"

namespace fermata {

bool overlap_collectives(Program& program);

}  // namespace fermata
