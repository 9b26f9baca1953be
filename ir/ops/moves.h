// Ops that move elements to a new buffer: copies, casts, concatenation, writes into a view.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// At most one pass over the operands.
inline constexpr OpFacts kMove{.effect = Effect::pure,
                               .cost = Cost::pass,
                               .may_fail_on_values = false,
                               .overwrites = false,
                               .precision = OperandPrecision::as_given};

struct Cast {
  ResultDType dtype;

  static constexpr OpFacts facts = kMove;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  ValueId emit(KernelEmitter& emitter) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Cast> example();
};

struct Copy {
  static constexpr OpFacts facts = kMove;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const { return call.operand(0); }
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  ValueId emit(KernelEmitter& emitter) const { return emitter.operand(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Copy> example() { return {{{DType::f32, Shape{3, 4}}}, {}}; }
};

struct Concat {
  Structure<Axis> axis;

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::more,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::widest,
                                 .joins = true};
  static constexpr Operands operands =
      Operands::any(operand("x0"), operand("x1"), operand("x2"), operand("x3"), operand("x4"), operand("x5"),
                    operand("x6"), operand("x7"), operand("x8"), operand("x.."));
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  ValueId emit(KernelEmitter& emitter) const { return emitter.joined(static_cast<unsigned>(axis.value)); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Concat> example() { return {{{DType::f32, Shape{3, 3}}, {DType::f32, Shape{3, 3}}}, {.axis = {0}}}; }
};

/// Writes values to a strided view of the row-major elements of x.
struct Update {
  Argument<std::int64_t> offset;
  Argument<Integers> strides;  // one for each axis of the values

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::pass,
                                 .may_fail_on_values = false,
                                 .overwrites = true,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("x"), operand("values")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Update> example();
};

/// Complex numbers from real and imaginary parts.
struct ComplexOfParts {
  static constexpr OpFacts facts = kMove;
  static constexpr Operands operands{operand("re"), operand("im")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<ComplexOfParts> example() { return {{{DType::f32, Shape{3, 4}}, {DType::f32, Shape{3, 4}}}, {}}; }
};

}  // namespace fermata::ops
