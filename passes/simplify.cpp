// See simplify.h.
#include "passes/simplify.h"

#include <map>
#include <tuple>

#include "ir/ops/views.h"
#include "passes/rewrite.h"

namespace fermata {
namespace {

const GraphNode& node(const Graph& g, ValueId v) { return g.nodes[v]; }
bool same_type(const Graph& g, ValueId a, ValueId b) {
  return g.nodes[a].dtype == g.nodes[b].dtype && g.nodes[a].shape == g.nodes[b].shape;
}

/// The only operand of v if it is made by `op`.
ValueId operand_if(const Graph& g, ValueId v, Op op) {
  const GraphNode& n = node(g, v);
  if (n.operands.empty() || n.operands[0].is_scalar()) return kNoValue;
  return node(g, n.operands[0].value).op == op ? n.operands[0].value : kNoValue;
}
ValueId operand(const Graph& g, ValueId v, std::size_t k = 0) { return node(g, v).operands[k].value; }

/// Every value of `from` is a value of `to`.
bool widens(DType from, DType to) { return from != to && promote(from, to) == to && info(from).kind == info(to).kind; }

// Each rule: a node v of op `on` may be replaced by the value that `apply` returns (kNoValue: does not apply).
struct Rule {
  std::string_view name;
  Op on;
  ValueId (*apply)(const Graph& g, ValueId v);
};

ValueId involution(const Graph& g, ValueId v, Op op) {
  const ValueId inner = operand_if(g, v, op);
  return inner == kNoValue ? kNoValue : operand(g, inner);
}

constexpr Rule kRules[] = {
    {"cast to the same dtype", Op::cast,
     [](const Graph& g, ValueId v) {
       return node(g, operand(g, v)).dtype == node(g, v).dtype ? operand(g, v) : kNoValue;
     }},
    {"widen and narrow back", Op::cast,
     [](const Graph& g, ValueId v) {
       const ValueId inner = operand_if(g, v, Op::cast);
       if (inner == kNoValue) return kNoValue;
       const ValueId x = operand(g, inner);
       return node(g, x).dtype == node(g, v).dtype && widens(node(g, x).dtype, node(g, inner).dtype) ? x : kNoValue;
     }},
    {"-(-x)", Op::negative, [](const Graph& g, ValueId v) { return involution(g, v, Op::negative); }},
    {"!!x", Op::logical_not, [](const Graph& g, ValueId v) { return involution(g, v, Op::logical_not); }},
    {"~~x", Op::bitwise_invert, [](const Graph& g, ValueId v) { return involution(g, v, Op::bitwise_invert); }},
    {"conj(conj(x))", Op::conj, [](const Graph& g, ValueId v) { return involution(g, v, Op::conj); }},
    {"abs(abs(x))", Op::abs, [](const Graph& g, ValueId v) { return operand_if(g, v, Op::abs); }},
    {"relu(relu(x))", Op::relu, [](const Graph& g, ValueId v) { return operand_if(g, v, Op::relu); }},
    {"maximum(x, x)", Op::maximum,
     [](const Graph& g, ValueId v) { return operand(g, v, 0) == operand(g, v, 1) ? operand(g, v) : kNoValue; }},
    {"minimum(x, x)", Op::minimum,
     [](const Graph& g, ValueId v) { return operand(g, v, 0) == operand(g, v, 1) ? operand(g, v) : kNoValue; }},
    {"where(c, x, x)", Op::where,
     [](const Graph& g, ValueId v) { return operand(g, v, 1) == operand(g, v, 2) ? operand(g, v, 1) : kNoValue; }},
    {"permutation undone", Op::permute,
     [](const Graph& g, ValueId v) {
       const ValueId inner = operand_if(g, v, Op::permute);
       if (inner == kNoValue) return kNoValue;
       const auto outer_axes = attributes_of<ops::Permute>(node(g, v)).axes.value,
                  inner_axes = attributes_of<ops::Permute>(node(g, inner)).axes.value;
       for (std::size_t i = 0; i < outer_axes.size(); ++i)
         if (inner_axes[static_cast<std::size_t>(outer_axes[i])] != static_cast<std::int64_t>(i)) return kNoValue;
       return operand(g, inner);
     }},
    {"identity permutation", Op::permute,
     [](const Graph& g, ValueId v) {
       const auto axes = attributes_of<ops::Permute>(node(g, v)).axes.value;
       for (std::size_t i = 0; i < axes.size(); ++i)
         if (axes[i] != static_cast<std::int64_t>(i)) return kNoValue;
       return operand(g, v);
     }},
    {"squeeze of expand_dims", Op::squeeze,
     [](const Graph& g, ValueId v) {
       const ValueId inner = operand_if(g, v, Op::expand_dims);
       return inner != kNoValue && node(g, inner).attributes == node(g, v).attributes ? operand(g, inner) : kNoValue;
     }},
    {"expand_dims of squeeze", Op::expand_dims,
     [](const Graph& g, ValueId v) {
       const ValueId inner = operand_if(g, v, Op::squeeze);
       return inner != kNoValue && node(g, inner).attributes == node(g, v).attributes ? operand(g, inner) : kNoValue;
     }},
};

ValueId apply_rules(const Graph& g, ValueId v) {
  for (const Rule& rule : kRules)
    if (rule.on == node(g, v).op)
      if (const ValueId to = rule.apply(g, v); to != kNoValue && same_type(g, to, v)) return to;
  return v;
}

/// Parts of a part that nothing else reads, along the same axis, are parts of the whole.
bool take_over_parts(const Graph& g, GraphNode& n, const std::vector<std::uint32_t>& uses) {
  std::vector<GraphOperand> parts;
  for (const GraphOperand& o : n.operands) {
    const GraphNode& part = g.nodes[o.value];
    const bool joins = part.op == n.op && uses[o.value] == 1 && part.attributes == n.attributes;
    joins ? parts.insert(parts.end(), part.operands.begin(), part.operands.end()) : parts.insert(parts.end(), o);
  }
  if (parts.size() == n.operands.size()) return false;
  n.operands = std::move(parts);
  return true;
}

}  // namespace

bool simplify(Program& program) {
  Graph& g = program.graph;
  const std::vector<std::uint32_t> uses = count_uses(g);
  std::vector<ValueId> replaced(g.nodes.size());
  using Key = std::tuple<Op, DType, std::vector<ValueId>, std::vector<std::int64_t>>;
  std::map<Key, ValueId> seen;
  bool changed = false;
  for (ValueId v = 0; v < g.nodes.size(); ++v) {
    GraphNode& n = g.nodes[v];
    for (GraphOperand& o : n.operands)
      if (!o.is_scalar()) o.value = replaced[o.value];
    if (traits(n.op).joins) changed = take_over_parts(g, n, uses) || changed;
    replaced[v] = apply_rules(g, v);
    if (replaced[v] == v && may_be_merged(n)) {
      std::vector<ValueId> operands;
      for (const GraphOperand& o : n.operands) operands.push_back(o.value);
      replaced[v] = seen.try_emplace(Key{n.op, n.dtype, std::move(operands), n.attributes}, v).first->second;
    }
    changed = changed || replaced[v] != v;
  }
  for (ValueId& v : g.outputs) v = replaced[v];
  return remove_dead(g) || changed;
}

}  // namespace fermata
