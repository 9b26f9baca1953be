// What of a node's attributes decides which code is right, as opposed to numbers that are arguments of the code.
//
// One description serves the key of a plan and the merge of equal nodes. A plan runs for every graph with its key, so
// two nodes may become one only where everything that tells them apart is in the key.
#pragma once

#include <cstdint>
#include <span>

#include "ir/graph.h"
#include "ir/op.h"

namespace fermata {

/// Which of an op's attributes are structure. The others are arguments: a plan takes them from the recording at hand.
enum class StructuralAttributes : std::uint8_t {
  all,
  none,
  first,       // the others are sizes
  second,      // likewise
  unit_steps,  // of slices: which steps are 1, so that loads may have unit stride
};
StructuralAttributes structural_attributes(Op op);

/// Calls add(word) for what a key has of the attributes of a node with `rank` axes.
template <class Add>
void each_structural_word(Op op, unsigned rank, std::span<const std::int64_t> attributes, Add&& add) {
  const auto both_halves = [&](std::int64_t v) {
    add(static_cast<std::uint32_t>(v));
    add(static_cast<std::uint32_t>(static_cast<std::uint64_t>(v) >> 32));
  };
  switch (structural_attributes(op)) {
    case StructuralAttributes::all:
      for (const std::int64_t v : attributes) both_halves(v);
      return;
    case StructuralAttributes::none: return;
    case StructuralAttributes::first: return both_halves(attributes[0]);
    case StructuralAttributes::second: return both_halves(attributes[1]);
    case StructuralAttributes::unit_steps: {
      std::uint32_t unit = 0;
      for (unsigned i = 0; i < rank; ++i) unit |= (attributes[rank + i] == 1 ? 1u : 0u) << i;
      return add(unit);
    }
  }
}

/// Whether two nodes of this op, dtype, operands and attributes have the same value in every run of a plan: it may be
/// merged, and all that decides its value is in the key of the plan.
bool may_be_merged(const Graph& graph, const GraphNode& node);

}  // namespace fermata
