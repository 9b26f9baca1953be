// See dimensions.h.
#include "passes/dimensions.h"

#include <algorithm>
#include <utility>

#include "ir/irregular_op.h"
#include "ir/ops/reduce.h"
#include "runtime/walk.h"

namespace fermata {

std::uint32_t Dimensions::find(std::uint32_t d) const {
  while (parent_[d] != d) d = parent_[d] = parent_[parent_[d]];
  return d;
}

void Dimensions::join(std::uint32_t a, std::uint32_t b) {
  a = find(a), b = find(b);
  if (a > b) std::swap(a, b);  // kOne is the smallest, so it stays the root
  parent_[b] = a;
}

void Dimensions::join_broadcast(const Graph& graph, ValueId operand, ValueId result) {
  const Shape& from = graph.nodes[operand].shape;
  const Shape& to = graph.nodes[result].shape;
  const unsigned lead = to.rank() - from.rank();
  for (unsigned i = lead; i < to.rank(); ++i)
    if (from[i - lead] == to[i]) join(axes_[operand][i - lead], axes_[result][i]);
}

bool Dimensions::has_one_element(ValueId value, unsigned axis) const {
  const std::uint32_t d = of(value, axis);
  return d == kOne || std::ranges::find(single_, d) != single_.end();
}

bool Dimensions::same_shape(ValueId a, ValueId b) const {
  if (axes_[a].size() != axes_[b].size()) return false;
  for (std::size_t i = 0; i < axes_[a].size(); ++i)
    if (find(axes_[a][i]) != find(axes_[b][i])) return false;
  return true;
}

void Dimensions::add(const Graph& graph, ValueId v) {
  const GraphNode& n = graph.nodes[v];
  auto& axes = axes_[v];
  const auto operand = [&](std::size_t k) { return n.operands[k].value; };
  for (unsigned i = 0; i < n.shape.rank(); ++i) {
    axes.push_back(static_cast<std::uint32_t>(parent_.size()));
    parent_.push_back(axes.back());
  }
  if (is_pointwise(n.op)) {
    for (const GraphOperand& o : n.operands)
      if (!o.is_scalar()) join_broadcast(graph, o.value, v);
    return;
  }
  if (family(n.op) == Family::reduce) {
    const auto op = attributes_of<ops::Reduction>(n);
    const bool keep = op.keepdims.value;
    for (unsigned i = 0, to = 0; i < axes_[operand(0)].size(); ++i) {
      const bool reduced = op.is_reduced(i);
      if (reduced && keep)
        join(axes[to++], kOne);
      else if (!reduced)
        join(axes[to++], axes_[operand(0)][i]);
    }
    return;
  }
  std::vector<const Shape*> shapes;
  for (const GraphOperand& o : n.operands) shapes.push_back(&graph.nodes[o.value].shape);
  EqualAxes equal(n.shape, shapes);
  if (traits(n.op).relate != nullptr) traits(n.op).relate(arguments_of(n), equal);
  const auto dimension = [&](EqualAxes::Place place) {
    if (place.of == EqualAxes::kOne) return kOne;
    return place.of == EqualAxes::kResult ? axes[place.axis]
                                          : axes_[operand(static_cast<std::size_t>(place.of))][place.axis];
  };
  for (const auto& [a, b] : equal.pairs) join(dimension(a), dimension(b));
}

/// The key of a plan says of leaves and views that their last axis has one element. Where such an axis is reduced it is
/// left as it is: values from before and after the reduction are told apart by it.
void Dimensions::add_single_elements(const Graph& graph) {
  std::vector<std::uint32_t> reduced;
  for (const GraphNode& n : graph.nodes) {
    if (family(n.op) != Family::reduce) continue;
    const auto& axes = axes_[n.operands[0].value];
    for (unsigned i = 0; i < axes.size(); ++i)
      if (attributes_of<ops::Reduction>(n).is_reduced(i)) reduced.push_back(find(axes[i]));
  }
  for (ValueId v = 0; v < graph.nodes.size(); ++v)
    if (records_single_elements(graph.nodes[v].op) && ends_in_single_elements(graph.nodes[v].shape)) {
      const std::uint32_t last = find(axes_[v].back());
      if (std::ranges::find(reduced, last) == reduced.end())
        join(last, kOne);
      else
        single_.push_back(last);
    }
}

Dimensions::Dimensions(const Graph& graph) : axes_(graph.nodes.size()) {
  for (ValueId v = 0; v < graph.nodes.size(); ++v) add(graph, v);
  add_single_elements(graph);
}

}  // namespace fermata
