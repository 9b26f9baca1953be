// Makes explicit what needs a buffer of its own.
//
// What it does    Inserts `copy` before a reshape of something that is not dense in row-major order, and after a view
// or
//                 leaf that is wanted as an output; gives every reader of a constant or position its own copy of that
//                 node, so that it never needs a buffer.
// Leaves behind   Reshapes whose operand is a buffer or a computed value; outputs that are computed values, all
// distinct.
#pragma once

#include "passes/program.h"

namespace fermata {

bool materialize(Program& program);

}  // namespace fermata
