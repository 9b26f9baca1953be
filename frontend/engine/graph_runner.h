// Runs a graph: makes its calls one by one through the kernel table.
//
// In eager mode every call runs; in compiled mode all are recorded, as in a C++ program. Used by the `fermata` command
// and by tests of random graphs.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"
#include "runtime/tensor.h"

namespace fermata {

/// Returns the outputs of a graph for the given inputs, in order. Nodes with a source line are recorded with it, others
/// with `where`.
///
/// Errors   ValueError if the number of tensors differs from that of inputs, or a dtype or shape does not match.
std::vector<Tensor> run_graph(const Graph& graph, std::span<const Tensor> inputs, Location where = Location::current());

}  // namespace fermata
