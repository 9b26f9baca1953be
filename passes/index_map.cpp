// See index_map.h.
#include "passes/index_map.h"

namespace fermata {

bool is_view(Op op) {
  switch (op) {
    case Op::reshape:
    case Op::expand_dims:
    case Op::squeeze:
    case Op::permute:
    case Op::slice:
    case Op::unfold:
    case Op::broadcast_to: return true;
    default: return false;
  }
}

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

}  // namespace

IndexMap identity_map(std::size_t rank) {
  IndexMap map;
  for (std::size_t i = 0; i < rank; ++i) map.axes.push_back({static_cast<std::int8_t>(i), true, true});
  return map;
}

std::optional<IndexMap> into_operand(const Graph& graph, ValueId node, const IndexMap& at, std::size_t k) {
  const GraphNode& n = graph.nodes[node];
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
  const GraphNode& x = graph.nodes[n.operands[0].value];
  IndexMap map = at;
  if (at.reshaped) return std::nullopt;
  std::vector<std::int8_t> axes(n.shape.rank(), -1);
  prepend(map.path, {PathStep::Kind::view, n.record, 0});
  switch (n.op) {
    case Op::reshape:
      map.reshaped = true, map.reshape = view;
      break;  // the map's axes are those of the reshape, over a dense buffer
    case Op::expand_dims:
      for (unsigned i = 0, from = 0; i < n.shape.rank(); ++i)
        if ((n.attributes[0] >> i & 1) == 0) axes[i] = static_cast<std::int8_t>(from++);
      remap(map, axes);
      break;
    case Op::squeeze:
      for (unsigned i = 0, to = 0; i < x.shape.rank(); ++i)
        if ((n.attributes[0] >> i & 1) == 0) axes[to++] = static_cast<std::int8_t>(i);
      remap(map, axes);
      break;
    case Op::permute:
      for (unsigned i = 0; i < n.shape.rank(); ++i) axes[i] = static_cast<std::int8_t>(n.attributes[i]);
      remap(map, axes);
      break;
    case Op::slice:
      for (AxisMap& a : map.axes)
        if (a.axis >= 0)
          a.whole = false, a.unit = a.unit && n.attributes[n.shape.rank() + static_cast<unsigned>(a.axis)] == 1;
      break;
    case Op::unfold: {  // two axes of the windows move along one of the operand
      const auto last = static_cast<std::int8_t>(x.shape.rank()), along = static_cast<std::int8_t>(n.attributes[0]);
      for (AxisMap& a : map.axes) {
        if (a.axis != last && a.axis != along) continue;
        a.whole = false, a.unit = a.unit && n.attributes[a.axis == last ? 3 : 2] == 1;
        a.axis = along;
      }
      break;
    }
    case Op::broadcast_to: remap(map, broadcast_axes(x.shape, n.shape)); break;
    default: return std::nullopt;
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
