// Control flow, and what recomputation needs.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

/// A generator with this key draws, inside a function that a node owns, from the stream of the call: every run of the
/// function has a key of its own, made of the call's seed and the number of the run.
inline constexpr std::uint64_t kStreamKey = 0x6a09e667f3bcc908;

// cond, while_loop and scan call functions that their nodes own. Operands are, in this order, what an op says below,
// and what its functions take; one more may follow, which is only waited for. Several results are packed as bytes
// (ir/tuple_layout.h). A seed is an f64 of no axes, of which the keys of streams are made.
inline constexpr OpFacts kCallsFunctions{.effect = Effect::pure,
                                         .cost = Cost::more,
                                         .may_fail_on_values = true,
                                         .overwrites = false,
                                         .precision = OperandPrecision::as_given};
inline constexpr NoExample kOwnsFunctions{"it calls functions that its node owns"};

/// The operands of a call that its functions take, and its results before they are packed: those of its last function,
/// of every step. Of calls that wait for nothing.
std::vector<TensorType> function_arguments(Op op, std::span<const std::int64_t> attributes,
                                           std::span<const TensorType> operands);
std::vector<TensorType> separate_results(Op op, std::span<const std::int64_t> attributes,
                                         std::span<const TensorType> results);

/// Operands: the predicate, the seed if there is one. Both functions take the rest.
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

/// Operands: the seed if there is one. Both functions take the state, which is as many of the operands that follow as
/// the body has results, and the rest.
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

/// Operands: the seed if there is one, what is carried, the sequences. The body takes what is carried, a slice of each
/// sequence, and the rest; it gives what is carried on, and slices of the other results.
struct ScanLoop {
  Structure<bool> seeded;
  Structure<std::int64_t> carries, sequences;
  Argument<std::int64_t> length;
  Argument<bool> reverse;
  OwnFunction body;

  static constexpr OpFacts facts = kCallsFunctions;
  static constexpr Operands operands = Operands::any(operand("x"));
  /// Of each step, as those of the op.
  std::vector<TensorType> stacked(std::span<const TensorType> results) const;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static constexpr NoExample example() { return kOwnsFunctions; }
};

/// A tensor from bytes that hold several.
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

/// The first operand, in a buffer that is filled once the second exists.
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
