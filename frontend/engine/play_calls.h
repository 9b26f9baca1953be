// Plays a graph op by op from `call` kernels: what happens to a structure that is met for the first time and is cheaper
// to run than to compile.
#pragma once

#include <span>

#include "runtime/storage.h"
#include "runtime/walk.h"

namespace fermata {

/// Computes every pending node of the walk; outputs[i] becomes the buffer of walk.outputs[i]. Buffers in between are
/// freed as soon as their last reader has run.
void play_calls(const Walk& walk, std::span<StoragePtr> outputs);

/// A rough prediction of what playing by calls costs, in ns.
double call_cost(const Walk& walk);

}  // namespace fermata
