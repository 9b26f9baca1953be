// Gathers and scatters: elements at positions that another operand gives.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// A position may be out of range.
inline constexpr OpFacts kIndexed{.effect = Effect::pure,
                                  .cost = Cost::more,
                                  .may_fail_on_values = true,
                                  .overwrites = false,
                                  .precision = OperandPrecision::as_given};

/// Slices at positions along an axis.
struct Take {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kIndexed;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Take> example() { return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{2}}}, {.axis = {0}}}; }
};

/// Slices added at positions along an axis.
struct IndexAdd {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kIndexed;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions), operand("source")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<IndexAdd> example() {
    return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{3}}, {DType::f32, Shape{3, 3}}}, {.axis = {0}}};
  }
};

/// One element for each position.
struct Gather {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kIndexed;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(1); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Gather> example() { return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{3, 3}}}, {.axis = {0}}}; }
};

/// scatter, scatter_add, scatter_multiply, scatter_maximum and scatter_minimum: one element put at each position.
struct Scatter {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kIndexed;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions), operand("source")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Scatter> example() {
    return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{3, 3}}, {DType::f32, Shape{3, 3}}}, {.axis = {0}}};
  }
};

}  // namespace fermata::ops
