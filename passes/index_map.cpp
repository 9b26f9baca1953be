// See index_map.h.
#include "passes/index_map.h"

namespace fermata {

namespace {

void prepend(std::vector<PathStep>& path, PathStep step) { path.insert(path.begin(), step); }

/// Broadcasting of `from` to `to`: which axis of `from` each axis of `to` follows, or -1.
std::vector<std::int8_t> broadcast_axes(const Shape& from, const Shape& to) {
  std::vector<std::int8_t> axes(to.rank(), -1);
  const unsigned lead = to.rank() - from.rank();
  for (unsigned i = lead; i < to.rank(); ++i)
    if (from[i - lead] == to[i]) axes[i] = static_cast<std::int8_t>(i - lead);
  return axes;
}

/// Replaces every axis of the map by what `axes` says of it.
void remap(IndexMap& map, const std::vector<std::int8_t>& axes) {
  for (AxisMap& a : map.axes)
    if (a.axis >= 0) a.axis = axes[static_cast<std::size_t>(a.axis)];
}

/// The axes [first, first + count) of `rank` axes in a mask.
std::uint16_t mask_of(unsigned first, unsigned count) {
  return static_cast<std::uint16_t>(((1u << count) - 1u) << first);
}

/// Of a node that gathers. Its axes are those of the elements before the axis, those of the positions, and the rest.
std::optional<IndexMap> into_gather(const Graph& graph, const GraphNode& n, const IndexMap& at, std::size_t k) {
  if (at.reshaped) return std::nullopt;
  const unsigned axis = static_cast<unsigned>(axis_of(n.op, n.attributes)), rank = n.shape.rank();
  const unsigned x_rank = graph.nodes[n.operands[0].value].shape.rank(), positions = rank + 1 - x_rank;
  IndexMap map = at;
  if (k == 0) {
    std::vector<std::int8_t> axes(rank, -1);
    for (unsigned i = 0; i < axis; ++i) axes[i] = static_cast<std::int8_t>(i);
    for (unsigned i = axis + positions; i < rank; ++i) axes[i] = static_cast<std::int8_t>(i - positions + 1);
    remap(map, axes);
    prepend(map.path, {PathStep::Kind::gathered, n.record, static_cast<std::uint16_t>(axis)});
    return map;
  }
  if (graph.nodes[n.operands[1].value].shape.rank() == rank) return map;  // a position for each element
  std::vector<std::int8_t> axes(rank, -1);
  for (unsigned i = axis; i < axis + positions; ++i) axes[i] = static_cast<std::int8_t>(i - axis);
  remap(map, axes);
  prepend(map.path, {PathStep::Kind::stretch, n.record, 0});
  const unsigned behind = rank - axis - positions;
  prepend(map.path, {PathStep::Kind::insert, 0,
                     static_cast<std::uint16_t>(mask_of(0, axis) | mask_of(axis + positions, behind))});
  return map;
}

/// Of a node that joins: every operand is seen as if it had the place of the whole.
std::optional<IndexMap> into_part(const Graph& graph, const GraphNode& n, const IndexMap& at, std::size_t k) {
  if (at.reshaped) return std::nullopt;
  const auto axis = static_cast<unsigned>(axis_of(n.op, n.attributes));
  IndexMap map = at;
  for (AxisMap& a : map.axes) a.whole = a.whole && a.axis != static_cast<std::int8_t>(axis);
  prepend(map.path, {PathStep::Kind::widened, n.record, 0});
  for (std::size_t before = 0; before < k; ++before)
    prepend(map.path,
            {PathStep::Kind::before, graph.nodes[n.operands[before].value].record, static_cast<std::uint16_t>(axis)});
  return map;
}

}  // namespace

IndexMap identity_map(std::size_t rank) {
  IndexMap map;
  for (std::size_t i = 0; i < rank; ++i) map.axes.push_back({static_cast<std::int8_t>(i), true, true});
  return map;
}

std::uint16_t mask_of_positions(const Graph& graph, ValueId node) {
  const GraphNode& n = graph.nodes[node];
  const unsigned rank = n.shape.rank(), x_rank = graph.nodes[n.operands[0].value].shape.rank();
  if (graph.nodes[n.operands[1].value].shape.rank() == rank) return mask_of(0, rank);
  return mask_of(static_cast<unsigned>(axis_of(n.op, n.attributes)), rank + 1 - x_rank);
}

std::optional<IndexMap> into_operand(const Graph& graph, ValueId node, const IndexMap& at, std::size_t k) {
  const GraphNode& n = graph.nodes[node];
  if (traits(n.op).gathers) return into_gather(graph, n, at, k);
  if (traits(n.op).joins) return into_part(graph, n, at, k);
  IndexMap map = at;
  if (!is_pointwise(n.op)) return map;
  const GraphNode& operand = graph.nodes[n.operands[k].value];
  if (operand.shape == n.shape) return map;
  if (at.reshaped) return std::nullopt;
  remap(map, broadcast_axes(operand.shape, n.shape));
  prepend(map.path, {PathStep::Kind::stretch, n.record, 0});
  return map;
}

std::optional<IndexMap> through_view(const Graph& graph, ValueId view, const IndexMap& at) {
  const GraphNode& n = graph.nodes[view];
  const OpTraits& op = traits(n.op);
  if (at.reshaped || !op.is_view) return std::nullopt;
  IndexMap map = at;
  prepend(map.path, {PathStep::Kind::view, n.record, 0});
  const auto moves = op.axes(arguments_of(n), n.shape, graph.nodes[n.operands[0].value].shape);
  if (!moves) {  // the map's axes are those of the view, over a dense buffer
    map.reshaped = true, map.reshape = view;
    return map;
  }
  for (AxisMap& a : map.axes) {
    if (a.axis < 0) continue;
    const ViewAxis& move = (*moves)[static_cast<std::size_t>(a.axis)];
    a = {move.axis, a.unit && move.unit, a.whole && move.whole};
  }
  return map;
}

std::optional<Followed> follow_views(const Graph& graph, ValueId value, IndexMap map) {
  while (is_view(graph.nodes[value].op)) {
    auto below = through_view(graph, value, map);
    if (!below) return std::nullopt;
    map = std::move(*below);
    value = graph.nodes[value].operands[0].value;
  }
  return Followed{value, std::move(map)};
}

}  // namespace fermata
