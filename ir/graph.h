// The graph that passes work on: an arena copy of pending nodes, in order, operands before users.
//
// Shapes are the sizes of the current recording. A compiled plan is valid for any sizes with the same structure, so
// passes may use sizes for cost estimates but not for correctness.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "ir/dtype.h"
#include "ir/op.h"
#include "ir/shape.h"
#include "ir/subgraph.h"

namespace fermata {

/// A value of the graph, or a host scalar of the node.
struct GraphOperand {
  ValueId value = kNoValue;  // index into Graph::nodes
  std::uint16_t scalar = 0;  // index into GraphNode::scalars if value is kNoValue
  bool is_scalar() const { return value == kNoValue; }
  bool operator==(const GraphOperand&) const = default;
};

/// One op. Attributes are integers in the order of the fields of the op's struct (ir/ops/*.h, ir/op_fields.h), which
/// attributes_of<ops::Sort>(node) reads by name; those of a reduction are in ir/ops/reduce.h.
/// Scalars: full [value]; random ops [key, offset]; pointwise ops one per scalar operand. A value is in the compute
/// dtype of the operands (of the result, for full): f32 for f16 and bf16, a real one for complex ones.
struct GraphNode {
  Op op = Op::input;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<GraphOperand> operands;
  std::vector<std::int64_t> attributes;
  std::vector<std::uint64_t> scalars;
  std::source_location where{};
  std::uint32_t context = 0;  // boxed calls: their dispatch context (dispatch/call_context.h)
  std::uint32_t record = 0;   // the node of the recording with the same shape, attributes and scalars
  bool dense = true;          // inputs only: row-major without gaps. Part of the structure.
  bool unit_inner = true;     // inputs only: the last axis has stride 1. Part of the structure.
  int unit_axis = -1;         // inputs without unit_inner: the last axis with stride 1, or -1. Part of the structure.
  std::shared_ptr<const Subgraphs> subgraphs{};  // its functions; null for most ops
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<ValueId> outputs;
};

/// The number of uses of each node, including outputs.
std::vector<std::uint32_t> count_uses(const Graph& graph);
/// The expected dtype of a node's operands: for pointwise ops the compute dtype of the op's rule.
DType operand_dtype(const Graph& graph, const GraphNode& node);

/// The text form, one node per line:
///   %0 = input : f32[4, 8]
///   %1 = multiply(%0, 2) : f32[4, 8]  @mlp.cpp:42
///   %2 = sum(%1) {axes=[1], keepdims=false} : f32[4]
///   return %2
/// The functions of a node follow it as nested graphs:
///   %3 = cond(%0, %1) {seeded=false} : f32[3]
///     when_true:
///       %0 = input : f32[3]
///       return %0
///     when_false:
///       ...
/// Scalars print exactly (shortest decimal that reads back; hexadecimal bits for NaN payloads). Never pointers or
/// times. With locations = false the @file:line part is left out.
std::string to_string(const Graph& graph, bool locations = false);
/// Parses the text form. Throws ParseError with line, column and a caret. Lines starting with `//` or `#` are comments.
/// Infers every type and checks it against the text.
Graph parse_graph(std::string_view text);

/// Throws InternalError naming the first broken rule: operand order, arity, types against infer(), attributes, outputs.
void verify(const Graph& graph);

/// Buffers of the reference interpreter: one per node, floats of any width held as double, integers and bool exactly.
struct ReferenceTensor {
  DType dtype;
  Shape shape;
  std::vector<double> floats;                        // if dtype is floating
  std::vector<std::int64_t> integers;                // if dtype is integer or bool (u64 by bits)
  std::vector<std::complex<double>> complexes = {};  // if dtype is complex
};
/// Evaluates the outputs of a graph node by node. Floating values are stored and computed in double regardless of dtype
/// (formulas at f64, sums in long double), so results are nearly exact; integers follow the primitives exactly.
std::vector<ReferenceTensor> evaluate_reference(const Graph& graph, const std::vector<ReferenceTensor>& inputs);

}  // namespace fermata
