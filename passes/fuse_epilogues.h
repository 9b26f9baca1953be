// Turns the kernel that follows a product, or another call computed in tiles, into its epilogue, which runs on each
// part of the result while it is in a cache, or in the library that computes it.
//
// Needs the steps of the plan. A call and the first kernel step that reads its result become an EpilogueStep if kernels
// of the call support epilogues, and the kernel step reads the result element by element and reduces at most its last
// axis: activations, biases, a softmax of the rows. Kernels between the two move before the call. Whether the sizes
// agree is checked when the plan is bound.
#pragma once

#include "passes/program.h"

namespace fermata {

bool fuse_epilogues(Program& program);

}  // namespace fermata
