// What passes and the runtime ask of an op beside its name and family: one answer per op, made from the struct of an
// irregular op (ir/irregular_op.h) or from the family of a regular one. No pass lists ops by name.
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

/// What it takes to compute a value again.
enum class Cost : std::uint8_t {
  nothing,  // its elements are known without reading any
  pass,     // no more than reading the operands once
  more,     // more than that: worth keeping for a backward pass
};

/// What autocast does to the floating operands of an op.
enum class OperandPrecision : std::uint8_t {
  as_given,  // nothing
  lower,     // f32 becomes the narrow dtype of the region
  f32,       // f16 and bf16 become f32
  widest,    // mixed ones become the widest, as promotion does
};

/// What the elements of an operand must be for a call to be valid.
enum class OperandElements : std::uint8_t {
  any,
  positions,          // integers below the size of operand 0 along `axis`
  pattern,            // row offsets and columns of a sparse matrix
  positive_definite,  // symmetric matrices with positive eigenvalues, where others may fail
};
struct OperandInfo {
  std::string_view name;
  OperandElements elements;
};

/// How an axis of a view's result moves through its operand.
struct ViewAxis {
  std::int8_t axis = -1;  // of the operand; -1: the same elements all along it
  bool unit = true;       // one step along it is one step along the operand's axis
  bool whole = true;      // the operand's axis is traversed from end to end
};

/// A call of an op without its operands' elements: what an example of one is.
struct OpCall {
  std::vector<DType> dtypes;  // of the operands
  std::vector<Shape> shapes;
  std::vector<std::int64_t> attributes;
  DType dtype = DType::f32;  // of the result, where that is an argument
  Shape shape;               // likewise
  std::vector<std::uint64_t> scalars;
};

struct OpTraits {
  std::span<const AttributeField> fields;  // the attributes that nodes hold, in order
  std::span<const OperandInfo> operands;   // of any number of operands the last one stands for the rest
  std::uint8_t least_operands = 0;         // of an irregular op
  bool takes_any_operands = false;         // likewise: as many as there are
  Effect effect = Effect::pure;
  Cost cost = Cost::pass;
  OperandPrecision precision = OperandPrecision::as_given;
  bool may_fail_on_values = true;
  bool overwrites = false;                      // may write its result where operand 0 lies
  bool is_view = false;                         // a strided view of operand 0
  bool is_keyed = true;                         // the key of a plan has all that tells two calls apart, operands aside
  bool takes_shape = false;                     // the shape of the result is an argument
  bool takes_dtype = false;                     // so is its dtype
  std::uint8_t scalars = 0;                     // host numbers, where these are all its arguments
  std::span<const std::string_view> subgraphs;  // the names of the functions that a node owns
  std::string_view no_example;                  // why it cannot be called by itself

  // Null where the op has none.
  TensorType (*infer)(const InferCall& call) = nullptr;
  void (*relate)(const OpArguments& arguments, EqualAxes& axes) = nullptr;
  bool (*apply)(const OpArguments& arguments, const Shape& to, Shape& sizes, Shape& strides,
                std::int64_t& offset) = nullptr;
  std::optional<std::vector<ViewAxis>> (*axes)(const OpArguments& arguments, const Shape& to, const Shape& x) = nullptr;
  ValueId (*emit)(const OpArguments& arguments, KernelEmitter& emitter) = nullptr;
  ReferenceTensor (*reference)(const GraphNode& node, const std::vector<const ReferenceTensor*>& operands) = nullptr;
  OpCall (*example)() = nullptr;
  std::vector<OpCall> (*other_examples)() = nullptr;  // that differ from it in one attribute, and in sizes
};

/// The traits of an op, custom operators included. The reference is valid for the life of the process.
const OpTraits& traits(Op op);

inline bool is_view(Op op) { return traits(op).is_view; }
/// Whether kernels may fuse the op, views apart.
inline bool has_emit_form(Op op) {
  return is_pointwise(op) || family(op) == Family::reduce || family(op) == Family::random || traits(op).emit != nullptr;
}

/// Ops whose arguments are all scalars: full and the random ops. They have no operands.
std::size_t scalar_argument_count(Op op);

/// How long each list of an op's attributes is where it has `count` integers in all; nothing if that cannot be.
std::optional<std::size_t> attribute_list_length(const OpTraits& op, std::size_t count);

/// The axis that the attributes of a call name, of an op that has one such attribute and no lists.
inline std::int64_t axis_of(Op op, Integers attributes) {
  std::size_t at = 0;
  for (const AttributeField& field : traits(op).fields) {
    if (field.kind == AttributeKind::axis) break;
    ++at;
  }
  return attributes[at];
}

/// Calls add(word) for what a key has of the attributes of a call.
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

/// The arguments of whatever holds attributes, a shape, a dtype, scalars and subgraphs under these names: a GraphNode.
template <class Node> OpArguments arguments_of(const Node& node) {
  return {node.attributes, node.shape, node.dtype, node.scalars, node.subgraphs.get()};
}

/// Whether two nodes of this op, dtype, operands and attributes have the same value in every run of a plan: all that
/// decides the value is in the key of the plan, and the op does nothing beside giving it.
bool may_be_merged(const GraphNode& node);

}  // namespace fermata
