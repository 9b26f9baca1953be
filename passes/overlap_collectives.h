// Collectives become a step that starts them, as soon as their operand is there, and one that waits for them, before
// the first step that reads their result. Whatever lies between runs meanwhile.
//
// They start in the order of the program, which is the same on all ranks. Steps after the last start are put in the
// order in which what they wait for was started. Needs lower and what joins steps: no pass may reorder steps
// afterwards. Leaves collectives alone that have nothing to run beside them.
#pragma once

#include "passes/program.h"

namespace fermata {

bool overlap_collectives(Program& program);

}  // namespace fermata
