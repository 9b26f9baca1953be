// A product, the kernel on its tiles and a product of what that leaves run block of rows by block of rows, so that nothing
// between the two products is ever whole in memory: attention, for one.
//
// Needs finish_tiles. Marks call steps that take their first operand from a kernel on the tiles of a call right before it,
// where the rows of both calls depend on the same rows of their first operands and nobody else reads what is between.
// Whether the sizes agree, and whether it pays, is found when the plan is bound to some; if not the steps run as they are.
#pragma once

#include "passes/program.h"

namespace fermata {

bool join_rows(Program& program);

}  // namespace fermata
