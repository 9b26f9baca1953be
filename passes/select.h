// Compile-time dispatch: which forms every node has in its backend's cell, and which it gets.
//
// Needs: nothing but a graph. Leaves behind: Program::choices. A node whose cell can emit for its dtype emits, so that
// it can fuse; otherwise it is a call step, whose variant is picked by predicate and cost when the plan is bound.
#pragma once

#include "passes/program.h"

namespace fermata {

bool select(Program& program);

}  // namespace fermata
