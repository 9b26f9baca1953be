// Control flow, and what recomputation needs.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// cond, while_loop and scan: calls of functions that were compiled apart. Their results are packed as bytes.
struct ControlFlow {
  ResultShape shape;
  ResultDType dtype;

  static constexpr OpFacts facts{
      .cost = Cost::more, .may_fail_on_values = true, .overwrites = false, .precision = OperandPrecision::as_given};
  static constexpr Operands operands = Operands::any(operand("function", Elements::handle), operand("x"));
  TensorType infer(const InferCall& call) const { return call.result(dtype.value, call.wanted.shape); }
  void relate(EqualAxes&) const {}
  static constexpr std::string_view no_reference = "its functions are not part of the graph";
  static constexpr NoExample example() { return {"a function that was compiled apart is its first operand"}; }
};

/// A tensor from bytes that hold several.
struct Unpack {
  Argument<std::int64_t> offset;  // in bytes
  ResultShape shape;
  ResultDType dtype;

  static constexpr OpFacts facts{
      .cost = Cost::pass, .may_fail_on_values = false, .overwrites = false, .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Unpack> example();
};

/// The first operand, in a buffer that is filled once the second exists.
struct After {
  static constexpr OpFacts facts{
      .cost = Cost::pass, .may_fail_on_values = false, .overwrites = false, .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const { return call.operand(0); }
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<After> example() { return {{{DType::f32, Shape{3, 4}}, {DType::f32, Shape{2}}}, {}}; }
};

}  // namespace fermata::ops
