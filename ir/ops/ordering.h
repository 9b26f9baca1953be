// Scans, sorting and searching.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

inline constexpr OpFacts kOrdered{.effect = Effect::pure,
                                  .cost = Cost::more,
                                  .may_fail_on_values = false,
                                  .overwrites = false,
                                  .precision = OperandPrecision::as_given};

/// The rows of FERMATA_SCAN: prefix reductions along an axis. The row's rule determines the accumulator dtype.
struct Scan {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kOrdered;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Scan> example() { return {{{DType::f32, Shape{3, 4}}}, {.axis = {0}}}; }
};

struct Sort {
  Structure<Axis> axis;
  Structure<bool> descending;

  static constexpr OpFacts facts = kOrdered;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Sort> example() { return {{{DType::f32, Shape{3, 4}}}, {.axis = {0}, .descending = {false}}}; }
};

struct Argsort {
  Structure<Axis> axis;
  Structure<bool> descending;

  static constexpr OpFacts facts = kOrdered;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Argsort> example() { return {{{DType::f32, Shape{3, 4}}}, {.axis = {0}, .descending = {false}}}; }
};

struct TopKIndices {
  Structure<Axis> axis;
  Structure<std::int64_t> k;
  Structure<bool> largest;

  static constexpr OpFacts facts = kOrdered;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<TopKIndices> example() {
    return {{{DType::f32, Shape{3, 4}}}, {.axis = {0}, .k = {2}, .largest = {true}}};
  }
};

struct Searchsorted {
  Structure<bool> right;

  static constexpr OpFacts facts = kOrdered;
  static constexpr Operands operands{operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(1); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Searchsorted> example() {
    return {{{DType::i32, Shape{4}}, {DType::i32, Shape{5}}}, {.right = {false}}};
  }
};

/// Along the last axis. Larger integers are ignored; negative ones are an error.
struct Bincount {
  ResultSize length;

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::more,
                                 .may_fail_on_values = true,
                                 .overwrites = false,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands = Operands::last_optional(operand("x"), operand("weights"));
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(equal.rank() - 1); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Bincount> example() {
    return {{{DType::i64, Shape{3, 12}}, {DType::f32, Shape{3, 12}}}, {.length = {5}}};
  }
};

struct Flatnonzero {
  ResultShape size;

  static constexpr OpFacts facts = kOrdered;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Flatnonzero> example();
};

}  // namespace fermata::ops
