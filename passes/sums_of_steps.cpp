// See sums_of_steps.h.
#include "passes/sums_of_steps.h"

#include <algorithm>

namespace fermata {
namespace {

/// Walks from a result through linear ops to the terms.
class Terms {
 public:
  explicit Terms(const Graph& graph) : graph_(graph), readers_(graph.nodes.size(), 0) {
    for (ValueId v = 0; v < graph.nodes.size(); ++v) {
      for (const GraphOperand& o : graph.nodes[v].operands)
        if (!o.is_scalar()) ++readers_[o.value];
      if (graph.nodes[v].op == Op::input) inputs_.push_back(v);
    }
    for (const ValueId v : graph.outputs) ++readers_[v];
  }

  /// Whether output i is a linear function of input i, which nothing else reads.
  bool find(std::size_t i) {
    linear.clear(), terms.clear();
    if (i >= inputs_.size() || i >= graph_.outputs.size()) return false;
    carried = inputs_[i];
    if (readers_[carried] != 1 || !is_inner(graph_.outputs[i])) return false;
    walk(graph_.outputs[i]);
    return std::ranges::find(terms, carried) != terms.end();
  }
  bool has_one_reader(ValueId v) const { return readers_[v] == 1; }

  std::vector<ValueId> linear, terms;  // terms: the carried value is one of them
  ValueId carried = 0;

 private:
  /// Whether a value is a linear function of its operands, or of the only one that is no number.
  bool is_linear(const GraphNode& n) const {
    const auto is_number = [&](std::size_t k) { return n.operands[k].is_scalar(); };
    switch (n.op) {
      case Op::add:
      case Op::subtract: return !is_number(0) && !is_number(1);
      case Op::multiply: return is_number(0) != is_number(1);
      case Op::divide: return !is_number(0) && is_number(1);
      case Op::negative:
      case Op::permute:
      case Op::reshape:
      case Op::expand_dims:
      case Op::squeeze: return true;
      default: return false;
    }
  }
  /// Integers are not linear in a division, and booleans in nothing.
  bool is_inner(ValueId v) const {
    return has_one_reader(v) && is_inexact(graph_.nodes[v].dtype) && is_linear(graph_.nodes[v]);
  }
  void walk(ValueId v) {
    linear.push_back(v);
    for (const GraphOperand& o : graph_.nodes[v].operands) {
      if (o.is_scalar()) continue;
      if (is_inner(o.value))
        walk(o.value);
      else
        terms.push_back(o.value);
    }
  }

  const Graph& graph_;
  std::vector<std::size_t> readers_;
  std::vector<ValueId> inputs_;
};

}  // namespace

std::vector<bool> find_sums_of_steps(const Graph& step, std::size_t carries) {
  Terms found(step);
  std::vector<bool> is_sum(carries);
  for (std::size_t i = 0; i < carries; ++i) is_sum[i] = found.find(i);
  return is_sum;
}

SumsOfSteps sums_of_steps(const Graph& step, const std::vector<unsigned>& axes) {
  const std::size_t count = step.nodes.size();
  SumsOfSteps sums{std::vector<unsigned>(count), std::vector<unsigned>(count), std::vector<std::size_t>(count),
                   std::vector<bool>(count)};
  Terms found(step);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == 0 || !found.find(i)) continue;
    for (const ValueId v : found.linear) sums.axes[v] = axes[i];
    for (const ValueId v : found.terms)
      if (found.has_one_reader(v)) sums.terms[v] = axes[i], sums.output[v] = i;
    sums.is_carried[found.carried] = true, sums.terms[found.carried] = 0;
  }
  return sums;
}

}  // namespace fermata
