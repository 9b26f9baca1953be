// Matrix products: dense, of bytes, and sparse.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

inline constexpr OpFacts kProduct{.effect = Effect::pure,
                                  .cost = Cost::more,
                                  .may_fail_on_values = false,
                                  .overwrites = false,
                                  .precision = OperandPrecision::as_given};
/// The pattern may have rows or columns out of range.
inline constexpr OpFacts kSparseProduct{.effect = Effect::pure,
                                        .cost = Cost::more,
                                        .may_fail_on_values = true,
                                        .overwrites = false,
                                        .precision = OperandPrecision::as_given};

/// matmul: over the last two axes; batch axes broadcast.
struct Matmul {
  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::more,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::lower};
  static constexpr Operands operands{operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Matmul> example() { return {{{DType::f32, Shape{3, 4}}, {DType::f32, Shape{4, 2}}}, {}}; }
};

/// matmul_i32: of bytes.
struct MatmulBytes {
  static constexpr OpFacts facts = kProduct;
  static constexpr Operands operands{operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { Matmul{}.relate(equal); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<MatmulBytes> example() { return {{{DType::i8, Shape{3, 4}}, {DType::i8, Shape{4, 2}}}, {}}; }
};

/// matmul_f32: of f16 or bf16, returning the f32 sums.
struct MatmulHalves {
  static constexpr OpFacts facts = kProduct;
  static constexpr Operands operands{operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { Matmul{}.relate(equal); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<MatmulHalves> example() { return {{{DType::bf16, Shape{3, 4}}, {DType::bf16, Shape{4, 2}}}, {}}; }
};

/// matmul_packed: of bytes, with a matrix stored in blocks.
struct MatmulPacked {
  ResultSize columns;

  static constexpr OpFacts facts = kProduct;
  static constexpr Operands operands{operand("x"), operand("packed")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<MatmulPacked> example() {
    return {{{DType::u8, Shape{3, 4}}, {DType::i8, Shape{1, 16, 64, 4}}}, {.columns = {5}}};
  }
};

/// matmul_weights: of floats, with packed weights (ir/packed_weights.h).
struct MatmulWeights {
  ResultSize columns;

  static constexpr OpFacts facts = kProduct;
  static constexpr Operands operands{operand("x"), operand("packed")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { MatmulPacked{}.relate(equal); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<MatmulWeights> example();
};

/// csr_matmul: a sparse matrix, or its transpose, times a dense one.
struct CsrMatmul {
  ResultSize columns;  // of the sparse matrix
  Structure<bool> transposed;

  static constexpr OpFacts facts = kSparseProduct;
  static constexpr Operands operands{operand("pattern", OperandElements::pattern), operand("values"), operand("dense")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.result(1, 2, 1); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<CsrMatmul> example() {
    return {{{DType::i64, Shape{3 + 1 + 4}}, {DType::f32, Shape{4}}, {DType::f32, Shape{3, 2}}},
            {.columns = {3}, .transposed = {true}}};
  }
};

/// csr_sampled_matmul: a product of dense matrices, computed only at the positions of a pattern.
struct CsrSampledMatmul {
  static constexpr OpFacts facts = kSparseProduct;
  static constexpr Operands operands{operand("pattern", OperandElements::pattern), operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<CsrSampledMatmul> example() {
    return {{{DType::i64, Shape{3 + 1 + 4}}, {DType::f32, Shape{3, 2}}, {DType::f32, Shape{3, 2}}}, {}};
  }
};

}  // namespace fermata::ops
