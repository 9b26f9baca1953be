// Linear algebra on stacks of matrices, and Fourier transforms.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// A matrix may be singular, or an iteration may not converge.
inline constexpr OpFacts kDecomposition{.effect = Effect::pure,
                                        .cost = Cost::more,
                                        .may_fail_on_values = true,
                                        .overwrites = false,
                                        .precision = OperandPrecision::as_given};
inline const TensorType kSquareExample{DType::f64, Shape{3, 3}};

struct Cholesky {
  Structure<bool> upper;

  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x", OperandElements::positive_definite)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Cholesky> example() { return {{kSquareExample}, {.upper = {false}}}; }
};

struct Solve {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("a", OperandElements::positive_definite), operand("b")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Solve> example() { return {{kSquareExample, {DType::f64, Shape{3, 2}}}, {}}; }
};

struct SolveTriangular {
  Structure<bool> upper;
  Structure<bool> unit;  // the diagonal is taken as ones

  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("a", OperandElements::positive_definite), operand("b")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<SolveTriangular> example() {
    return {{kSquareExample, {DType::f64, Shape{3, 2}}}, {.upper = {false}, .unit = {false}}};
  }
};

/// inv and cofactor: a matrix from each matrix.
struct MatrixOfMatrix {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x", OperandElements::positive_definite)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<MatrixOfMatrix> example() { return {{kSquareExample}, {}}; }
};

struct Det {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x", OperandElements::positive_definite)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Det> example() { return {{kSquareExample}, {}}; }
};

struct Slogdet {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x", OperandElements::positive_definite)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Slogdet> example() { return {{kSquareExample}, {}}; }
};

struct Qr {
  Structure<bool> complete;  // Q is square

  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Qr> example() { return {{{DType::f64, Shape{4, 3}}}, {.complete = {false}}}; }
};

struct Eigh {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x", OperandElements::positive_definite)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Eigh> example() { return {{kSquareExample}, {}}; }
};

struct Eigvalsh {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x", OperandElements::positive_definite)};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Eigvalsh> example() { return {{kSquareExample}, {}}; }
};

struct Svd {
  Structure<bool> full;  // U and Vh are square

  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Svd> example() { return {{{DType::f64, Shape{4, 3}}}, {.full = {false}}}; }
};

struct Svdvals {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Svdvals> example() { return {{{DType::f64, Shape{4, 3}}}, {}}; }
};

struct Pinv {
  static constexpr OpFacts facts = kDecomposition;
  static constexpr Operands operands{operand("x"), operand("rtol")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Pinv> example() { return {{{DType::f64, Shape{4, 3}}, {DType::f64, Shape{}}}, {}}; }
};

/// Except for fft, transforms change the size of their axis.
inline constexpr OpFacts kTransform{.effect = Effect::pure,
                                    .cost = Cost::more,
                                    .may_fail_on_values = false,
                                    .overwrites = false,
                                    .precision = OperandPrecision::as_given};

struct Fft {
  Structure<Axis> axis;
  Structure<bool> inverse;

  static constexpr OpFacts facts = kTransform;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Fft> example() { return {{{DType::c64, Shape{3, 4}}}, {.axis = {0}, .inverse = {false}}}; }
};

struct Rfft {
  Structure<Axis> axis;

  static constexpr OpFacts facts = kTransform;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Rfft> example() { return {{{DType::f32, Shape{3, 4}}}, {.axis = {0}}}; }
};

struct Irfft {
  Structure<Axis> axis;
  ResultSize count;

  static constexpr OpFacts facts = kTransform;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Irfft> example() { return {{{DType::c64, Shape{4, 4}}}, {.axis = {0}, .count = {6}}}; }
};

struct Dct {
  Structure<Axis> axis;
  Structure<std::int64_t> type;  // 1 to 4

  static constexpr OpFacts facts = kTransform;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Dct> example() { return {{{DType::f32, Shape{3, 4}}}, {.axis = {0}, .type = {2}}}; }
};

}  // namespace fermata::ops
