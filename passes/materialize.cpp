// See materialize.h.
#include "passes/materialize.h"

#include "passes/index_map.h"
#include "passes/rewrite.h"

namespace fermata {
namespace {

GraphNode copy_of(const Graph& g, ValueId v) {
  GraphNode copy;
  copy.op = Op::copy;
  copy.dtype = g.nodes[v].dtype, copy.shape = g.nodes[v].shape;
  copy.operands = {{v, 0}};
  copy.where = g.nodes[v].where, copy.record = g.nodes[v].record;
  return copy;
}

/// What a value is a view of that has the same elements in the same order.
ValueId source_in_order(const Graph& g, ValueId v) {
  while (traits(g.nodes[v].op).keeps_order) v = g.nodes[v].operands[0].value;
  return v;
}
bool costs_nothing(Op op) { return traits(op).cost == Cost::nothing; }
/// Whether a buffer, which is dense, has the elements of `v` in their order.
bool is_computed_in_order(const Graph& g, ValueId v) {
  const Op op = g.nodes[source_in_order(g, v)].op;
  return op != Op::input && !is_view(op);
}
/// Whether a copy of it is the same buffer as well.
bool is_stored_in_order(const Graph& g, ValueId v) {
  return is_computed_in_order(g, v) && !costs_nothing(g.nodes[source_in_order(g, v)].op);
}
/// The computed value whose buffer that is.
ValueId value_in_order(const Graph& g, ValueId v) { return is_computed_in_order(g, v) ? source_in_order(g, v) : v; }

/// Of what its operand is a reshape of, if it is one: only the last shape counts.
void keep_reshape(Rewriter& to, const Graph& from, ValueId v) {
  const ValueId operand = from.nodes[v].operands[0].value, shown = to.moved(operand);
  const GraphNode& x = to.graph().nodes[shown];
  if (x.op == Op::reshape) to.redirect(operand, x.operands[0].value);
  to.keep(v);
  to.redirect(operand, shown);
}

}  // namespace

bool materialize(Program& program) {
  const Graph& from = program.graph;
  const std::vector<std::uint32_t> uses = count_uses(from);
  Rewriter to(from);
  for (ValueId v = 0; v < from.nodes.size(); ++v) {
    const GraphNode& n = from.nodes[v];
    if (n.op == Op::reshape) {
      const GraphNode& x = from.nodes[n.operands[0].value];
      if ((is_view(x.op) && x.op != Op::reshape) || (x.op == Op::input && !x.dense))
        to.redirect(n.operands[0].value, to.add(copy_of(to.graph(), to.moved(n.operands[0].value))));
    }
    for (const GraphOperand& o : n.operands) {
      if (o.is_scalar() || !costs_nothing(from.nodes[o.value].op) || uses[o.value] < 2) continue;
      to.redirect(o.value, to.add(from.nodes[o.value]));
    }
    if (n.op == Op::reshape) {
      keep_reshape(to, from, v);
    } else if (n.op == Op::copy && is_stored_in_order(to.graph(), to.moved(n.operands[0].value))) {
      to.redirect(v, to.moved(n.operands[0].value));
    } else {
      to.keep(v);
    }
  }
  std::vector<bool> taken(to.graph().nodes.size() + from.outputs.size(), false);
  program.output_records.clear();
  for (const ValueId v : from.outputs) {
    ValueId out = to.moved(v);
    if (const ValueId base = value_in_order(to.graph(), out); !taken[base]) out = base;
    program.output_records.push_back(from.nodes[v].record);
    const Op op = to.graph().nodes[out].op;
    if (op == Op::input || is_view(op) || taken[out])
      out = to.add(copy_of(to.graph(), out));
    else
      taken[out] = true;
    to.graph().outputs.push_back(out);
  }
  program.graph = std::move(to.graph());
  return remove_dead(program.graph) || true;
}

}  // namespace fermata
