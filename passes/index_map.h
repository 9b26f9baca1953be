// Index maps: the index of a value as a function of a point of a group's domain, known without sizes.
//
// From a consumer down to an operand, through stretches and view ops, an index map gives for every axis of the domain
// the axis of the value that it moves along, and whether by unit steps. It determines what may be fused and the form of
// an access; the strides themselves are computed when a plan is bound.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/op_traits.h"
#include "runtime/plan.h"

namespace fermata {

struct AxisMap {
  std::int8_t axis = -1;  // of the value; -1: the index does not depend on this domain axis
  bool unit = true;       // one step along the domain axis is one step along the value's axis
  bool whole = true;      // the value's axis is traversed from end to end
  bool operator==(const AxisMap&) const = default;
};

struct IndexMap {
  std::vector<AxisMap> axes;   // per domain axis
  ValueId reshape = kNoValue;  // the reshape whose axes these are, if `reshaped`
  bool reshaped = false;       // the value is seen under another shape: only dense layouts in that order can follow
  std::vector<PathStep> path;  // from the value up to the domain, nearest to the value first
  bool operator==(const IndexMap&) const = default;
};

/// The map of a value with the axes of the domain.
IndexMap identity_map(std::size_t rank);
/// Whether a node reads operand `k` at positions.
inline bool is_gathered(const GraphNode& node, std::size_t k) { return k == 0 && traits(node.op).gathers; }

/// The axes of the result of such a node that go along its positions.
std::uint16_t mask_of_positions(const Graph& graph, ValueId node);

/// The map of operand `k` of a node with map `at`, before any view ops of the operand. For reductions `at` is the map
/// of the operand's own axes. A gathered operand has none for the axis that it is gathered along. nullopt if a reshape
/// above and a broadcast here cannot be folded together.
std::optional<IndexMap> into_operand(const Graph& graph, ValueId node, const IndexMap& at, std::size_t k);
/// The map of a view op's operand; nullopt if it cannot be folded.
std::optional<IndexMap> through_view(const Graph& graph, ValueId view, const IndexMap& at);
/// Follows view ops down to the first value that is not a view. nullopt if a view cannot be folded.
struct Followed {
  ValueId source;
  IndexMap map;
};
std::optional<Followed> follow_views(const Graph& graph, ValueId value, IndexMap map);

}  // namespace fermata
