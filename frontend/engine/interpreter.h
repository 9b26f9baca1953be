// The interpreter: runs a graph op by op with `call` kernels. That is what happens to a structure that is met for the
// first time and is cheaper to run than to compile.
#pragma once

#include <span>

#include "runtime/storage.h"
#include "runtime/walk.h"

namespace fermata {

/// Computes every pending node of the walk; outputs[i] becomes the buffer of walk.outputs[i]. Buffers in between are
/// freed as soon as their last reader has run.
void interpret(const Walk& walk, std::span<StoragePtr> outputs);

/// A rough prediction of what interpreting costs, in ns.
double interpretation_cost(const Walk& walk);

}  // namespace fermata
