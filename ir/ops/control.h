// Control flow, and ordering of recomputation.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// Inside a function owned by a node, a generator with this key draws from the stream of the call. Every run of the
/// function has its own key, derived from the call's seed and the number of the run.
inline constexpr std::uint64_t kStreamKey = 0x6a09e667f3bcc908;

// cond, while_loop and scan call functions that their nodes own. Operands are those listed below, followed by the
// arguments of the functions; one more may follow that only orders the call. Several results are packed as bytes
// (ir/tuple_layout.h). The seed is a 0-d f64, from which stream keys are derived.
inline constexpr OpFacts kCallsFunctions{.effect = Effect::pure,
                                         .cost = Cost::more,
                                         .may_fail_on_values = true,
                                         .overwrites = false,
                                         .precision = OperandPrecision::as_given};
inline constexpr NoExample kOwnsFunctions{"it calls functions that its node owns"};

/// The operands of a call that are function arguments, and its results before packing: those of its last function, per
/// step. For calls without an ordering operand.
std::vector<TensorType> function_arguments(Op op, std::span<const std::int64_t> attributes,
                                           std::span<const TensorType> operands);
std::vector<TensorType> separate_results(Op op, std::span<const std::int64_t> attributes,
                                         std::span<const TensorType> results);

/// Operands: the predicate, and the seed if any. Both functions take the rest.
struct Cond {
  Structure<bool> seeded;
  OwnFunction when_true, when_false;

  static constexpr OpFacts facts = kCallsFunctions;
  static constexpr Operands operands = Operands::any(operand("predicate"), operand("x"));
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static constexpr NoExample example() { return kOwnsFunctions; }
};

/// Operands: the seed if any. Both functions take the state (as many operands as the body has results) and the rest.
struct WhileLoop {
  Structure<bool> seeded;
  OwnFunction condition, body;

  static constexpr OpFacts facts = kCallsFunctions;
  static constexpr Operands operands = Operands::any(operand("x"));
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static constexpr NoExample example() { return kOwnsFunctions; }
};

/// Operands: the seed if any, the carries, the sequences. The body takes the carries, a slice of each sequence, and the
/// rest; it returns the new carries, and slices of the other results.
struct ScanLoop {
  Structure<bool> seeded;
  Structure<std::int64_t> carries, sequences;
  Argument<std::int64_t> length;
  Argument<bool> reverse;
  OwnFunction body;

  static constexpr OpFacts facts = kCallsFunctions;
  static constexpr Operands operands = Operands::any(operand("x"));
  /// The results of the op, given those of one step.
  std::vector<TensorType> stacked(std::span<const TensorType> results) const;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static constexpr NoExample example() { return kOwnsFunctions; }
};

/// Extracts a tensor from packed bytes.
struct Unpack {
  Argument<std::int64_t> offset;  // in bytes
  ResultShape shape;
  ResultDType dtype;

  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::pass,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Unpack> example();
};

/// The first operand, in a buffer that is filled after the second one is computed.
struct After {
  static constexpr OpFacts facts{.effect = Effect::pure,
                                 .cost = Cost::pass,
                                 .may_fail_on_values = false,
                                 .overwrites = false,
                                 .precision = OperandPrecision::as_given};
  static constexpr Operands operands{operand("lhs"), operand("rhs")};
  TensorType infer(const InferCall& call) const { return call.operand(0); }
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<After> example() { return {{{DType::f32, Shape{3, 4}}, {DType::f32, Shape{2}}}, {}}; }
};

}  // namespace fermata::ops
