// See reference_check.h.
#include "tests/fuzz/reference_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fermata/fermata.h"
#include "frontend/engine/sync.h"
#include "ir/float16.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "runtime/walk.h"

namespace fermata::testing {
namespace {

bool floating(DType dtype) { return info(dtype).kind == DTypeKind::floating; }

ReferenceTensor read(const Tensor& x) {
  ReferenceTensor r{x.dtype(), x.shape(), {}, {}};
  if (floating(x.dtype()))
    r.floats = x.to_vector<double>();
  else if (x.dtype() != DType::u64)
    r.integers = x.to_vector<std::int64_t>();
  else
    for (const std::uint64_t v : x.to_vector<std::uint64_t>()) r.integers.push_back(static_cast<std::int64_t>(v));
  return r;
}

double round_to(DType dtype, double x) {
  switch (dtype) {
    case DType::f16: return static_cast<double>(to_float(to_float16(x)));
    case DType::bf16: return static_cast<double>(to_float(to_bfloat16(x)));
    case DType::f32: return static_cast<double>(static_cast<float>(x));
    default: return x;
  }
}
double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    default: return 0x1p-52;
  }
}
/// The largest number that is finite in the dtype.
double largest(DType dtype) {
  switch (dtype) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::f32: return static_cast<double>(std::numeric_limits<float>::max());
    default: return std::numeric_limits<double>::max();
  }
}
/// Below this the spacing of numbers no longer shrinks with them.
double smallest(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-14;
    case DType::bf16:
    case DType::f32: return 0x1p-126;
    default: return std::numeric_limits<double>::min();
  }
}

/// A graph of one node of `g` over inputs, for values of its operands.
struct Single {
  Graph graph;
  std::vector<ReferenceTensor> inputs;
};
Single alone(const Graph& g, ValueId v, const std::vector<ReferenceTensor>& values) {
  Single single;
  GraphNode node = g.nodes[v];
  for (GraphOperand& operand : node.operands) {
    if (operand.is_scalar()) continue;
    GraphNode input;
    input.dtype = g.nodes[operand.value].dtype, input.shape = g.nodes[operand.value].shape;
    single.inputs.push_back(values[operand.value]);
    single.graph.nodes.push_back(std::move(input));
    operand.value = static_cast<ValueId>(single.graph.nodes.size() - 1);
  }
  single.graph.outputs = {static_cast<ValueId>(single.graph.nodes.size())};
  single.graph.nodes.push_back(std::move(node));
  return single;
}

/// What the terms of a sum add up to without their signs: its rounding error grows with that. Empty for other ops.
std::vector<double> magnitude(const Graph& g, ValueId v, const std::vector<ReferenceTensor>& values) {
  const Op op = g.nodes[v].op;
  if (op == Op::tanhshrink) {  // the difference of two numbers that are nearly equal
    std::vector<double> terms = values[g.nodes[v].operands[0].value].floats;
    for (double& x : terms) x = std::abs(x);
    return terms;
  }
  constexpr Op kSums[] = {Op::sum,         Op::matmul, Op::convolution,   Op::index_add,
                          Op::scatter_add, Op::fold,   Op::cumulative_sum};
  if (std::ranges::find(kSums, op) == std::end(kSums)) return {};
  Single single = alone(g, v, values);
  for (ReferenceTensor& input : single.inputs)
    for (double& x : input.floats) x = std::abs(x);
  return evaluate_reference(single.graph, single.inputs)[0].floats;
}

/// Ops that jump where the quotient of their operands is rounded to a whole number, or round an operand first.
bool too_rough(const Graph& g, const GraphNode& n) {
  if (family(n.op) == Family::random) return true;
  if (n.op == Op::floor_divide || n.op == Op::remainder || n.op == Op::fmod) return floating(operand_dtype(g, n));
  if (!is_pointwise(n.op) || !floating(operand_dtype(g, n))) return false;
  // An i64 beside an f32 becomes one, with less of its digits: the reference keeps them.
  return std::any_of(n.operands.begin(), n.operands.end(), [&](const GraphOperand& o) {
    return !o.is_scalar() && !floating(g.nodes[o.value].dtype) && byte_size(g.nodes[o.value].dtype) >= 2;
  });
}

std::string difference(const Graph& g, ValueId v, const std::vector<ReferenceTensor>& values) {
  const GraphNode& n = g.nodes[v];
  const ReferenceTensor& got = values[v];
  const Single single = alone(g, v, values);
  const ReferenceTensor want = evaluate_reference(single.graph, single.inputs)[0];
  const std::vector<double> terms = magnitude(g, v, values);
  // index_add adds and scans combine one after another, so that every step may round; sums and products are trees.
  double roundings = 0;
  if (n.op == Op::index_add || n.op == Op::scatter_add)
    roundings = static_cast<double>(element_count(g.nodes[n.operands[1].value].shape));
  if (n.op == Op::cumulative_sum || n.op == Op::cumulative_prod)
    roundings = static_cast<double>(n.shape[static_cast<std::size_t>(n.attributes[0])]);
  for (std::size_t i = 0; i < got.integers.size(); ++i)
    if (got.integers[i] != want.integers[i])
      return fmt::format("element {} is {}, and should be {}", i, got.integers[i], want.integers[i]);
  for (std::size_t i = 0; i < got.floats.size(); ++i) {
    const double x = got.floats[i], y = want.floats[i], rounded = round_to(n.dtype, y);
    if (x == y || x == rounded || (std::isnan(x) && std::isnan(y))) continue;
    if (!terms.empty() && terms[i] > 0.01 * largest(n.dtype)) continue;
    if ((n.op == Op::prod || n.op == Op::cumulative_prod) && (x == 0 || !std::isfinite(x)))
      continue;  // a part of it left the range
    // What multiplies the rounding of an exponent (docs/numerics.md).
    double of_exponent = 0;
    if (n.op == Op::gelu_tanh && single.inputs[0].floats[i] < -1) {
      const double at = std::abs(single.inputs[0].floats[i]);
      of_exponent = 4 * 1.6 * at * (1 + 0.045 * at * at);
    }
    // Near their zeros these are right to the digits of 1 (docs/numerics.md).
    const bool crosses_zero = n.op == Op::j0 || n.op == Op::j1 || n.op == Op::lgamma || n.op == Op::logaddexp ||
                              (n.op == Op::digamma && single.inputs[0].floats[i] < 0);
    const double least = crosses_zero ? 1 : 16 * smallest(n.dtype);
    const double scale = std::max({std::abs(y), terms.empty() ? 0.0 : terms[i], least});
    // Sums of f16 and bf16 are rounded from f32, those of matmul also while they are added up.
    if (std::abs(x - y) <= (32 + roundings + of_exponent) * epsilon(n.dtype) * scale) continue;
    // Intermediate results beyond the largest number.
    if (std::isinf(x) && std::abs(y) > 0x1p-10 * largest(n.dtype)) continue;
    return fmt::format("element {} is {}, and should be {}", i, x, y);
  }
  return {};
}

}  // namespace

std::string check_against_reference(std::span<const Tensor> tensors) {
  std::vector<Node*> roots;
  for (const Tensor& t : tensors)
    if (t.pending()) roots.push_back(t.node());
  if (roots.empty()) return {};
  Walk walk;
  walk.run(roots);
  const Graph graph = import_graph(walk);
  std::vector<Tensor> nodes;
  for (const Walk::Entry& entry : walk.order) {
    entry.node->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    nodes.emplace_back(entry.node, DispatchKeySet(entry.node->backend) | Functionality::dense);
  }
  sync(nodes);
  std::vector<ReferenceTensor> values;
  for (const Tensor& t : nodes) values.push_back(read(t));
  for (ValueId v = 0; v < graph.nodes.size(); ++v) {
    if (graph.nodes[v].op == Op::input || too_rough(graph, graph.nodes[v])) continue;
    if (const std::string text = difference(graph, v, values); !text.empty())
      return fmt::format("%{} {}: {}\n{}", v, name(graph.nodes[v].op), text, to_string(graph));
  }
  return {};
}

}  // namespace fermata::testing
