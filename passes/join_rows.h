// A product, the kernel on its tiles and a product of what that leaves run block of rows by block of rows, or, on a
// device, as one kernel, so that nothing between the two products is ever whole in memory: attention, for one.
//
// Needs finish_tiles. Marks call steps that take their first operand from a kernel on the tiles of a call right before
// it, where the rows of both calls depend on the same rows of their first operands and nobody else reads what is
// between; for a device, where its executable can do all of it (runtime/executable.h). Whether the sizes agree, and
// whether it pays, is found when the plan is bound to some; if not the steps run as they are.
#pragma once

#include <string>

#include "passes/program.h"

namespace fermata {

bool join_rows(Program& program);

/// What explain says of such a step: how it runs with the two before it, for the sizes of the recording.
std::string describe_joined(const Program& program, std::size_t step);

}  // namespace fermata
