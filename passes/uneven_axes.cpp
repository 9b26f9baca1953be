// See uneven_axes.h.
#include "passes/uneven_axes.h"

#include <bit>

namespace fermata {

void UnevenAxes::add(const Shape& shape, const Sharding& sharding) {
  for (unsigned i = 0; i < shape.rank(); ++i)
    for (unsigned mask = sharding.axes[i]; mask != 0; mask &= ~std::bit_floor(mask))
      if (shape[i] % request_.mesh.parts(mask) != 0) sizes_.emplace(shape[i], mask);
}

void UnevenAxes::find(const std::vector<std::optional<KeptSharding>>& kept) {
  const Graph& graph = request_.graph;
  for (ValueId v = 0; v < graph.nodes.size(); ++v) {
    const GraphNode& n = graph.nodes[v];
    if (n.op == Op::input)
      add(n.shape, request_.inputs[v].sharding);
    else if (const auto wanted = request_.constraint ? request_.constraint(n) : std::nullopt)
      add(n.shape, *wanted);
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) add(graph.nodes[graph.outputs[i]].shape, kept[i]->sharding);
}

bool UnevenAxes::may_divide(std::int64_t size, unsigned mesh_axes) const {
  return size % request_.mesh.parts(mesh_axes) == 0 || sizes_.contains({size, mesh_axes});
}

bool UnevenAxes::may_divide(const SplitFactor& factor, const GraphNode& call, unsigned mesh_axes) const {
  if (factor.size % request_.mesh.parts(mesh_axes) == 0) return true;
  if (!may_divide(factor.size, mesh_axes)) return false;
  const auto has_its_size = [&](const Shape& shape, std::int8_t axis) {
    return axis == SplitFactor::kNone || shape[static_cast<unsigned>(axis)] == factor.size;
  };
  if (!has_its_size(call.shape, factor.result)) return false;
  for (std::size_t k = 0; k < factor.operands.size(); ++k)
    if (factor.operands[k] != SplitFactor::kNone &&
        !has_its_size(request_.graph.nodes[call.operands[k].value].shape, factor.operands[k]))
      return false;
  return true;
}

bool UnevenAxes::gathers(ValueId v, const std::vector<DividedCall>& calls) const {
  const Graph& graph = request_.graph;
  const GraphNode& n = graph.nodes[v];
  if (sizes_.empty() || n.op == Op::input || calls[v].is_constraint || n.subgraphs != nullptr) return false;
  std::optional<SplitRule> rule;
  for (std::size_t k = 0; k < n.operands.size(); ++k) {
    if (n.operands[k].is_scalar() || calls[v].is_free[k]) continue;
    const ValueId from = n.operands[k].value;
    for (unsigned i = 0; i < graph.nodes[from].shape.rank(); ++i) {
      const unsigned mask = calls[from].result.axes[i];
      if (graph.nodes[from].shape[i] % request_.mesh.parts(mask) == 0 || calls[v].needs[k].axes[i] != 0) continue;
      if (!rule) rule = split_rule(graph, n);
      if (!rule) return false;
      for (const SplitFactor& f : rule->factors)
        if (f.operands[k] == static_cast<std::int8_t>(i) && !may_divide(f, n, mask)) return true;
    }
  }
  return false;
}

double largest_share(const SplitRule& rule, const DividedCall& call, const MeshAxes& mesh) {
  double share = 1;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const std::int64_t size = rule.factors[f].size, parts = mesh.parts(call.by_factor(f));
    if (size != 0) share *= static_cast<double>((size + parts - 1) / parts) / static_cast<double>(size);
  }
  return share;
}

}  // namespace fermata
