// Plays a graph: makes the calls that it describes, one by one, through the kernel table.
//
// In eager mode every call runs; in compiled mode all are recorded, so what a text says and what a program does go the
// same way. Used by the `fermata` command and by tests of random graphs.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"
#include "runtime/tensor.h"

namespace fermata {

/// The outputs of a graph for tensors that take the place of its inputs, in their order. Nodes that carry a line of
/// their own are recorded with it, the others with `where`.
///
/// Errors   ValueError if there are more or fewer tensors than inputs, or one has another dtype or shape.
std::vector<Tensor> run_graph(const Graph& graph, std::span<const Tensor> inputs, Location where = Location::current());

}  // namespace fermata
