// Collectives: calls that all ranks of a group make in the same order.
//
// `group` is the number of the group in this process (runtime/collectives.h), `ranks` its size; ranks are relative to
// the group. Operands and results have the same type on every rank, so that all ranks record the same program. An
// additional last operand only orders the call: the previous call with an effect of this thread.
#pragma once

#include "ir/collective.h"
#include "ir/irregular_op.h"

namespace fermata::ops {

inline constexpr OpFacts kCollective{.effect = Effect::effect,
                                     .cost = Cost::more,
                                     .may_fail_on_values = true,
                                     .overwrites = false,
                                     .precision = OperandPrecision::as_given};
inline constexpr std::string_view kOtherProcesses = "its other operands are in other processes";
inline constexpr Operands kCollectiveOperands = Operands::last_optional(operand("x"), operand("before"));
inline constexpr Operands kNoCollectiveOperands = Operands::last_optional(operand("before"));

/// `reduction` is a CollectiveReduction.
struct AllReduce {
  Structure<std::int64_t> group, ranks, reduction;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct ReduceTo {
  Structure<std::int64_t> group, ranks, reduction, root;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct AllGather {
  Structure<std::int64_t> group, ranks;
  Structure<Axis> axis;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct ReduceScatter {
  Structure<std::int64_t> group, ranks, reduction;
  Structure<Axis> axis;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct AllToAll {
  Structure<std::int64_t> group, ranks;
  Structure<Axis> split_axis, concat_axis;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct BroadcastFrom {
  Structure<std::int64_t> group, ranks, root;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

/// Only the root's operand is read.
struct ScatterFrom {
  Structure<std::int64_t> group, ranks, root;
  Structure<Axis> axis;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct GatherTo {
  Structure<std::int64_t> group, ranks, root;
  Structure<Axis> axis;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

/// Sends from the first to the second rank of each pair; no rank occurs twice as first, or twice as second.
struct PermuteRanks {
  Structure<std::int64_t> group, ranks;
  Structure<Integers> pairs;  // first and second, alternating

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

/// The result is true.
struct SendTo {
  Structure<std::int64_t> group, ranks, peer, tag;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

struct ReceiveFrom {
  Structure<std::int64_t> group, ranks, peer, tag;
  ResultShape shape;
  ResultDType dtype;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kNoCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

/// The result is true.
struct Barrier {
  Structure<std::int64_t> group, ranks;

  static constexpr OpFacts facts = kCollective;
  static constexpr Operands operands = kNoCollectiveOperands;
  static constexpr std::string_view no_reference = kOtherProcesses;
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  static constexpr NoExample example() { return {kOtherProcesses}; }
};

}  // namespace fermata::ops
