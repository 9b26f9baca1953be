// Stores what is computed for a concat alone where the concat puts it.
//
// What it does    Finds operands of concat calls that are results of kernels and that nothing else reads.
// Leaves behind   Program::parts. Kernels store these values in parts of the result; the call copies its other
//                 operands, and is no step if there are none.
#pragma once

#include "passes/program.h"

namespace fermata {

bool place_parts(Program& program);

}  // namespace fermata
