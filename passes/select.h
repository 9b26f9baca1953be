// Compile-time dispatch: the forms that every node has in its backend's cell, and the form it gets.
//
// Needs: nothing but a graph. Leaves behind: Program::choices. A node whose cell has an emit form for its dtype uses
// it, so that it can fuse; otherwise it is a call step, whose variant is picked by predicate and cost when the plan is
// bound.
#pragma once

#include "passes/program.h"

namespace fermata {

bool select(Program& program);

}  // namespace fermata
