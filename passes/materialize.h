// Makes explicit which values need a buffer.
//
// What it does    Inserts `copy` before a reshape of a value that is not dense in row-major order, and after a view or
//                 leaf that is an output, unless the buffer of a computed value has its elements in the same order,
//                 where a copy of it is dropped, too; gives every reader of a constant or position its own copy of that
//                 node, so that it never needs a buffer.
// Leaves behind   Reshapes whose operand is a buffer or a computed value; outputs that are distinct computed values.
#pragma once

#include "passes/program.h"

namespace fermata {

bool materialize(Program& program);

}  // namespace fermata
