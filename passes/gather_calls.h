// Call steps of one op, one after another, that do not depend on each other become one call where their sizes agree:
// many small products then cost what one batched product does.
//
// Needs finish_tiles and join_rows, whose steps it leaves alone, and kernels that say that they do several calls at
// once. Whether the sizes agree is found when the plan is bound to some.
#pragma once

#include "passes/program.h"

namespace fermata {

bool gather_calls(Program& program);

}  // namespace fermata
