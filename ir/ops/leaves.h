// Ops without operands: inputs, constants, positions.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

struct Input {
  ResultShape shape;
  ResultDType dtype;

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::pass,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands{};
  TensorType infer(const InferCall& call) const { return call.result(dtype.value, call.wanted.shape); }
  void relate(EqualAxes&) const {}
  static constexpr std::string_view no_reference = "its elements are given";
  static constexpr NoExample example() { return {"a leaf of the graph"}; }
};

struct Full {
  HostScalar value;
  ResultShape shape;
  ResultDType dtype;

  static constexpr OpFacts facts = kLeaf;
  static constexpr Operands operands{};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  ValueId emit(KernelEmitter& emitter) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Full> example();
};

struct Iota {
  Structure<Axis> axis;
  ResultShape shape;

  static constexpr OpFacts facts = kLeaf;
  static constexpr Operands operands{};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  ValueId emit(KernelEmitter& emitter) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Iota> example();
};

}  // namespace fermata::ops
