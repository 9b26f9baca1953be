// See dimensions.h.
#include "passes/dimensions.h"

#include <algorithm>
#include <utility>

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
    const bool keep = n.attributes[1] != 0;
    for (unsigned i = 0, to = 0; i < axes_[operand(0)].size(); ++i) {
      const bool reduced = (n.attributes[0] >> i & 1) != 0;
      if (reduced && keep)
        join(axes[to++], kOne);
      else if (!reduced)
        join(axes[to++], axes_[operand(0)][i]);
    }
    return;
  }
  switch (n.op) {
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name:
#include "ir/ops.def"
    case Op::sort:
    case Op::argsort:
    case Op::complex:
    case Op::cholesky:
    case Op::inv:
    case Op::cofactor:
    case Op::fft:
    case Op::cast:
    case Op::copy:
    case Op::after:
    case Op::index_add:
    case Op::update:
    case Op::scatter:
    case Op::scatter_add:
    case Op::scatter_multiply:
    case Op::scatter_maximum:
    case Op::scatter_minimum:
    case Op::broadcast_to: join_broadcast(graph, operand(0), v); break;
    case Op::expand_dims:
      for (unsigned i = 0, from = 0; i < axes.size(); ++i)
        join(axes[i], (n.attributes[0] >> i & 1) != 0 ? kOne : axes_[operand(0)][from++]);
      break;
    case Op::squeeze:
      for (unsigned i = 0, to = 0; i < axes_[operand(0)].size(); ++i)
        join(axes_[operand(0)][i], (n.attributes[0] >> i & 1) != 0 ? kOne : axes[to++]);
      break;
    case Op::permute:
      for (unsigned i = 0; i < axes.size(); ++i)
        join(axes[i], axes_[operand(0)][static_cast<std::size_t>(n.attributes[i])]);
      break;
    case Op::top_k_indices:
      for (unsigned i = 0; i < axes.size(); ++i)
        if (i != static_cast<unsigned>(n.attributes[0])) join(axes[i], axes_[operand(0)][i]);
      break;
    case Op::searchsorted: join_broadcast(graph, operand(1), v); break;
    case Op::matmul:
    case Op::matmul_i32:
      if (const auto& a = axes_[operand(0)], &b = axes_[operand(1)]; a.size() >= 2 && b.size() >= 2) {
        join(axes[axes.size() - 2], a[a.size() - 2]);
        join(axes.back(), b.back());
        join(a.back(), b[b.size() - 2]);
      }
      break;
    case Op::matmul_packed:
      for (std::size_t i = 0; i + 1 < axes.size(); ++i) join(axes[i], axes_[operand(0)][i]);
      break;
    case Op::gather: join_broadcast(graph, operand(1), v); break;
    case Op::unfold:
    case Op::fold:
      for (std::size_t i = 0; i < std::min(axes.size(), axes_[operand(0)].size()); ++i)
        if (static_cast<std::int64_t>(i) != n.attributes[0]) join(axes[i], axes_[operand(0)][i]);
      break;
    case Op::convolution: join(axes[0], axes_[operand(0)][0]), join(axes[1], axes_[operand(1)][0]); break;
    case Op::convolution_data_gradient: join(axes[0], axes_[operand(0)][0]); break;
    case Op::convolution_weight_gradient: join(axes[0], axes_[operand(1)][1]); break;
    case Op::csr_matmul: join(axes[1], axes_[operand(2)][1]); break;
    default: break;  // new sizes: leaves, iota, full, random, slice, reshape, concat, take
  }
}

/// The key of a plan says of leaves that their last axis has one element. Where such an axis is reduced it is left as
/// it is: values from before and after the reduction are told apart by it.
void Dimensions::add_single_elements(const Graph& graph) {
  std::vector<std::uint32_t> reduced;
  for (const GraphNode& n : graph.nodes) {
    if (family(n.op) != Family::reduce) continue;
    const auto& axes = axes_[n.operands[0].value];
    for (unsigned i = 0; i < axes.size(); ++i)
      if ((n.attributes[0] >> i & 1) != 0) reduced.push_back(find(axes[i]));
  }
  for (ValueId v = 0; v < graph.nodes.size(); ++v)
    if (graph.nodes[v].op == Op::input && ends_in_single_elements(graph.nodes[v].shape))
      if (const std::uint32_t last = find(axes_[v].back()); std::ranges::find(reduced, last) == reduced.end())
        join(last, kOne);
}

Dimensions::Dimensions(const Graph& graph) : axes_(graph.nodes.size()) {
  for (ValueId v = 0; v < graph.nodes.size(); ++v) add(graph, v);
  add_single_elements(graph);
}

}  // namespace fermata
