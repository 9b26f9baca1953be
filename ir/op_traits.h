// Properties of ops for passes and the runtime, derived from the struct of an irregular op (ir/irregular_op.h) or the
// family of a regular one. No pass lists ops by name.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/effect.h"
#include "ir/op.h"
#include "ir/op_fields.h"

namespace fermata {

struct Graph;
struct GraphNode;
struct InferCall;
struct ReferenceTensor;
struct TensorType;
class EqualAxes;
class KernelEmitter;

/// The cost of recomputing a value.
enum class Cost : std::uint8_t {
  nothing,  // elements are known without reading memory
  pass,     // at most one pass over the operands
  more,     // more than that: worth saving for a backward pass
};

/// What autocast does to the floating operands of an op.
enum class OperandPrecision : std::uint8_t {
  as_given,  // nothing
  lower,     // f32 becomes the narrow dtype of the region
  f32,       // f16 and bf16 become f32
  widest,    // mixed ones become the widest, as promotion does
};

/// Constraints on the elements of an operand.
enum class OperandElements : std::uint8_t {
  any,
  positions,          // integers below the size of operand 0 along `axis`
  pattern,            // row offsets and columns of a sparse matrix
  positive_definite,  // symmetric matrices with positive eigenvalues; others may fail
};
struct OperandInfo {
  std::string_view name;
  OperandElements elements;
};

/// How an axis of a view's result maps to its operand.
struct ViewAxis {
  std::int8_t axis = -1;  // of the operand; -1: broadcast
  bool unit = true;       // one step is one step along the operand's axis
  bool whole = true;      // it covers the whole operand axis
};

/// A call of an op without operand elements, as in examples.
struct OpCall {
  std::vector<DType> dtypes;  // of the operands
  std::vector<Shape> shapes;
  std::vector<std::int64_t> attributes;
  DType dtype = DType::f32;  // of the result, if it is an argument
  Shape shape;               // likewise
  std::vector<std::uint64_t> scalars;
};

struct OpTraits {
  std::span<const AttributeField> fields;  // attributes stored in nodes, in order
  std::span<const OperandInfo> operands;   // for variadic ops the last one applies to the rest
  std::uint8_t least_operands = 0;         // of an irregular op
  bool takes_any_operands = false;         // variadic
  Effect effect = Effect::pure;
  Cost cost = Cost::pass;
  OperandPrecision precision = OperandPrecision::as_given;
  bool may_fail_on_values = true;
  bool overwrites = false;                      // may reuse the buffer of operand 0 for its result
  bool is_view = false;                         // a strided view of operand 0
  bool keeps_order = false;                     // a view of all its elements, in row-major order whatever the sizes
  bool begins_as_operand = false;               // kernels first copy operand 0 to the result, unless it is there
  bool gathers = false;                         // reads operand 0 along its axis at positions, operand 1
  bool joins = false;                           // its operands follow each other along its axis
  bool is_keyed = true;                         // the key of a plan distinguishes calls with different arguments
  bool takes_shape = false;                     // the shape of the result is an argument
  bool takes_dtype = false;                     // so is its dtype
  std::uint8_t scalars = 0;                     // number of host scalars, if they are its only arguments
  std::span<const std::string_view> subgraphs;  // names of the node's functions
  std::string_view no_example;                  // why it cannot be called on its own

  // Null if the op has none.
  TensorType (*infer)(const InferCall& call) = nullptr;
  void (*relate)(const OpArguments& arguments, EqualAxes& axes) = nullptr;
  bool (*apply)(const OpArguments& arguments, const Shape& to, Shape& sizes, Shape& strides,
                std::int64_t& offset) = nullptr;
  std::optional<std::vector<ViewAxis>> (*axes)(const OpArguments& arguments, const Shape& to, const Shape& x) = nullptr;
  ValueId (*emit)(const OpArguments& arguments, KernelEmitter& emitter) = nullptr;
  ReferenceTensor (*reference)(const GraphNode& node, const std::vector<const ReferenceTensor*>& operands) = nullptr;
  OpCall (*example)() = nullptr;
  std::vector<OpCall> (*other_examples)() = nullptr;  // each differs from it in one attribute, and in sizes
};

/// The traits of an op, including custom operators. The reference is valid for the lifetime of the process.
const OpTraits& traits(Op op);

inline bool is_view(Op op) { return traits(op).is_view; }
/// Whether an op only picks elements of its operands, as take and concat do. It is a part of kernels only together with
/// others, and what it picks from must be in memory.
inline bool picks_elements(Op op) { return traits(op).gathers || traits(op).joins; }
/// Whether the op can be fused into kernels, apart from views.
inline bool has_emit_form(Op op) {
  return is_pointwise(op) || family(op) == Family::reduce || family(op) == Family::random || traits(op).emit != nullptr;
}

/// Ops whose arguments are all scalars: full and the random ops. They have no operands.
std::size_t scalar_argument_count(Op op);

/// The length of each list attribute of an op with `count` integers in total, or nullopt if `count` is invalid.
std::optional<std::size_t> attribute_list_length(const OpTraits& op, std::size_t count);

/// The axis attribute of a call, for ops with one axis attribute and no lists.
inline std::int64_t axis_of(Op op, Integers attributes) {
  std::size_t at = 0;
  for (const AttributeField& field : traits(op).fields) {
    if (field.kind == AttributeKind::axis) break;
    ++at;
  }
  return attributes[at];
}

/// Calls add(word) for the structural part of a call's attributes.
template <class Add> void each_structural_word(const OpTraits& op, Integers attributes, Add&& add) {
  const auto both_halves = [&](std::int64_t v) {
    add(static_cast<std::uint32_t>(v));
    add(static_cast<std::uint32_t>(static_cast<std::uint64_t>(v) >> 32));
  };
  const std::size_t length = attribute_list_length(op, attributes.size()).value_or(0);
  const std::int64_t* next = attributes.data();
  for (const AttributeField& field : op.fields) {
    const std::size_t count = field.kind == AttributeKind::list ? length : 1;
    if (field.role == AttributeRole::structure)
      for (std::size_t i = 0; i < count; ++i) both_halves(next[i]);
    if (field.role == AttributeRole::steps) {
      std::uint32_t unit = 0;
      for (std::size_t i = 0; i < count; ++i) unit |= (next[i] == 1 ? 1u : 0u) << i;
      add(unit);
    }
    next += count;
  }
}

/// The arguments of a node with members attributes, shape, dtype, scalars and subgraphs, such as a GraphNode.
template <class Node> OpArguments arguments_of(const Node& node) {
  return {node.attributes, node.shape, node.dtype, node.scalars, node.subgraphs.get()};
}

/// Whether two nodes with equal op, dtype, operands and attributes always have the same value in a plan: everything
/// that determines the value is in the plan's key, and the op is pure.
bool may_be_merged(const GraphNode& node);

}  // namespace fermata
