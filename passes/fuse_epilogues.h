// Turns the kernel that follows a product, or another call computed in tiles, into its epilogue, which runs on each
// part of the result while it is in a cache, or in the library that computes it.
//
// Needs the steps of the plan. A call and the first kernel step that reads its result become an EpilogueStep where
// kernels of the call run epilogues, and where the kernel reads the result element by element and reduces at most its
// last axis: activations, biases, a softmax of the rows. Kernels between the two go before the call. Whether the sizes
// agree is found when the plan is bound to some.
#pragma once

#include "passes/program.h"

namespace fermata {

bool fuse_epilogues(Program& program);

}  // namespace fermata
