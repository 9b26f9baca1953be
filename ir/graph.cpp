// See graph.h.
#include "ir/graph.h"

#include <algorithm>

#include "ir/custom_op.h"
#include "ir/op_traits.h"

namespace fermata {

std::vector<std::uint32_t> count_uses(const Graph& graph) {
  std::vector<std::uint32_t> uses(graph.nodes.size(), 0);
  for (const GraphNode& node : graph.nodes)
    for (const GraphOperand& operand : node.operands)
      if (!operand.is_scalar()) ++uses[operand.value];
  for (const ValueId output : graph.outputs) ++uses[output];
  return uses;
}

DType operand_dtype(const Graph& graph, const GraphNode& node) {
  if (family(node.op) == Family::random) return DType::u64;
  if (info(node.op).rule == DTypeRule::choose) return node.dtype;
  const auto tensor = std::find_if(node.operands.begin(), node.operands.end(),
                                   [](const GraphOperand& operand) { return !operand.is_scalar(); });
  if (tensor == node.operands.end()) return node.dtype;
  const DType dtype = graph.nodes[tensor->value].dtype;
  const auto rule = apply_rule(info(node.op).rule, dtype);
  return rule ? rule->operand : dtype;
}

std::size_t scalar_argument_count(Op op) { return effect_of(op) == Effect::random ? 2 : traits(op).scalars; }

}  // namespace fermata
