// Which axes of operands and result of an op may be split together, so that the op on blocks gives blocks.
//
// A rule is a list of factors. A factor of the result is an axis of it and the axes of operands that go with it: block
// i of the result is the op on block i of those. A contracted factor has no axis of the result: the op on blocks
// gives partial results that are combined. Axes in no factor are needed whole.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/collective.h"
#include "ir/graph.h"

namespace fermata {

struct SplitFactor {
  static constexpr std::int8_t kNone = -1;
  std::int8_t result = kNone;         // the axis of the result; none if contracted
  std::vector<std::int8_t> operands;  // by operand: its axis, or none
  std::int64_t size = 0;              // how many equal parts there are at most: split by a divisor of this
  CollectiveReduction combine = CollectiveReduction::sum;  // of partial results, if contracted
};

struct SplitRule {
  std::vector<SplitFactor> factors;
  std::vector<bool> is_free;         // by operand: only waited for, so its sharding does not matter
  std::optional<std::size_t> added;  // an operand that a sum of partial results counts once
};

/// The rule of a node; empty if its op has none, and works on whole operands only.
std::optional<SplitRule> split_rule(const Graph& graph, const GraphNode& node);

}  // namespace fermata
