// Gathers and scatters at positions given by another operand.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// A position may be out of range.
inline constexpr OpFacts kIndexed{.effect = Effect::pure,
                                  .cost = Cost::more,
                                  .may_fail_on_values = true,
                                  .overwrites = false,
                                  .precision = OperandPrecision::as_given};
/// The elements of operand 0, some of which are replaced or combined with others.
inline constexpr OpFacts kIntoOperand = [] {
  OpFacts facts = kIndexed;
  facts.begins_as_operand = true;
  return facts;
}();

inline constexpr OpFacts kGathering = [] {
  OpFacts facts = kIndexed;
  facts.gathers = true;
  return facts;
}();

/// Slices at positions along an axis.
struct Take {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kGathering;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  ValueId emit(KernelEmitter& emitter) const { return emitter.gathered(static_cast<unsigned>(axis.value)); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Take> example() { return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{2}}}, {.axis = {0}}}; }
};

/// Slices added at positions along an axis.
struct IndexAdd {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kIntoOperand;
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

  static constexpr OpFacts facts = kGathering;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(1); }
  ValueId emit(KernelEmitter& emitter) const { return emitter.gathered(static_cast<unsigned>(axis.value)); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Gather> example() { return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{3, 3}}}, {.axis = {0}}}; }
};

/// Samples images at coordinates from -1 to 1 along each axis, the last axis first.
struct GridSample {
  Structure<std::int64_t> mode;     // 0: the nearest element, 1: linear, 2: cubic
  Structure<std::int64_t> padding;  // outside: 0: zeros, 1: border elements, 2: reflection
  Structure<bool> align_corners;    // -1 and 1 are the centers of the border elements, not their outer edges

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::more,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("x"), operand("grid")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const {
    equal.result(0, 0, 0), equal.result(0, 1, 0), equal.result(1, 0, 1), equal.result(2, 1, 1);
  }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<GridSample> example() {
    return {{{DType::f32, Shape{2, 3, 4, 5}}, {DType::f32, Shape{2, 6, 2}}},
            {.mode = {1}, .padding = {0}, .align_corners = {false}}};
  }
};

/// scatter, scatter_add, scatter_multiply, scatter_maximum and scatter_minimum: writes one element at each position.
struct Scatter {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kIntoOperand;
  static constexpr Operands operands{operand("x"), operand("index", OperandElements::positions), operand("source")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Scatter> example() {
    return {{{DType::f32, Shape{3, 3}}, {DType::i64, Shape{3, 3}}, {DType::f32, Shape{3, 3}}}, {.axis = {0}}};
  }
};

}  // namespace fermata::ops
