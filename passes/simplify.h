// Removes redundant nodes: dead nodes, casts and views that change nothing, equal subexpressions.
//
// Rules are rows of a table in simplify.cpp. They look at structure only: scalar values and sizes are arguments of a
// plan, so x * 1 stays, and two nodes with scalars are never merged. Needs: a verified graph. Leaves behind: a graph
// without dead nodes; records stay as they were.
#pragma once

#include "passes/program.h"

namespace fermata {

bool simplify(Program& program);

}  // namespace fermata
