// Turns groups and single nodes into the steps of a plan.
//
// Needs: fuse. Leaves behind: Program::kernels, kernel_names and plan: kernel steps and call steps, without lifetimes
// (plan_memory adds those). A group that cannot be compiled is split into its nodes; a node that cannot be compiled on
// its own becomes a call step, with a warning that names its source line.
#pragma once

#include "passes/program.h"

namespace fermata {

bool lower(Program& program);

}  // namespace fermata
