// Convolution, its gradients, and fold: the sum of windows.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// Contractions benefit from narrow operands and accumulate in f32 anyway.
inline constexpr OpFacts kConvolution{.effect = Effect::pure,
                                      .cost = Cost::more,
                                      .may_fail_on_values = false,
                                      .overwrites = false,
                                      .precision = OperandPrecision::lower};

struct Convolution {
  Structure<std::int64_t> groups;
  Structure<Integers> strides, padding, padding_end, dilation;  // one for each spatial axis

  static constexpr OpFacts facts = kConvolution;
  static constexpr Operands operands{operand("x"), operand("weight")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.result(0, 0, 0), equal.result(1, 1, 0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Convolution> example();
  static std::vector<Example<Convolution>> other_examples();
};

/// convolution_data_gradient: a transposed convolution.
struct ConvolutionDataGradient {
  Structure<std::int64_t> groups;
  Structure<Integers> strides, padding, padding_end, dilation;
  ResultShape shape;

  static constexpr OpFacts facts = kConvolution;
  static constexpr Operands operands{operand("gradient"), operand("weight")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.result(0, 0, 0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<ConvolutionDataGradient> example();
  static std::vector<Example<ConvolutionDataGradient>> other_examples();
};

/// convolution_weight_gradient.
struct ConvolutionWeightGradient {
  Structure<std::int64_t> groups;
  Structure<Integers> strides, padding, padding_end, dilation;
  ResultShape shape;

  static constexpr OpFacts facts = kConvolution;
  static constexpr Operands operands{operand("x"), operand("gradient")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.result(0, 1, 1); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<ConvolutionWeightGradient> example();
  static std::vector<Example<ConvolutionWeightGradient>> other_examples();
};

/// Sums overlapping windows along an axis: the transpose of unfold.
struct Fold {
  Structure<Axis> axis;
  Structure<std::int64_t> step, dilation;
  ResultShape shape;

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::more,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Fold> example();
  static std::vector<Example<Fold>> other_examples();
};

}  // namespace fermata::ops
