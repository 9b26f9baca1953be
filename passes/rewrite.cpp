// See rewrite.h.
#include "passes/rewrite.h"

#include "ir/custom_op.h"

namespace fermata {

bool remove_dead(Graph& g) {
  std::vector<bool> live(g.nodes.size(), false);
  for (const ValueId v : g.outputs) live[v] = true;
  for (ValueId v = 0; v < g.nodes.size(); ++v)
    if (effect_of(g.nodes[v].op) == Effect::effect) live[v] = true;
  for (ValueId v = static_cast<ValueId>(g.nodes.size()); v-- > 0;) {
    if (g.nodes[v].op == Op::input) live[v] = true;
    if (!live[v]) continue;
    for (const GraphOperand& o : g.nodes[v].operands)
      if (!o.is_scalar()) live[o.value] = true;
  }
  Rewriter rewriter(g);
  for (ValueId v = 0; v < g.nodes.size(); ++v)
    if (live[v]) rewriter.keep(v);
  for (const ValueId v : g.outputs) rewriter.graph().outputs.push_back(rewriter.moved(v));
  const bool changed = rewriter.graph().nodes.size() != g.nodes.size();
  g = std::move(rewriter.graph());
  return changed;
}

ValueId Rewriter::keep(ValueId v) {
  GraphNode n = from_.nodes[v];
  for (GraphOperand& o : n.operands)
    if (!o.is_scalar()) o.value = moved_[o.value];
  return moved_[v] = add(std::move(n));
}

ValueId Rewriter::add(GraphNode node) {
  to_.nodes.push_back(std::move(node));
  return static_cast<ValueId>(to_.nodes.size() - 1);
}

}  // namespace fermata
