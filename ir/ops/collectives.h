// Collectives: calls that all ranks of a group make, in one order.
//
// `group` is the number that this process has given to the group (runtime/collectives.h), `ranks` says how many are in
// it; ranks count within the group. Every rank gives an operand of one type and gets a result of one type, so that all
// ranks record one program. An operand may follow that is only waited for: the call with an effect that the thread has
// recorded before.
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

/// The elements of other ranks than the root are not read.
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

/// Elements go from the first of each pair of ranks to the second; no rank is twice among the first, or the second.
struct PermuteRanks {
  Structure<std::int64_t> group, ranks;
  Structure<Integers> pairs;  // first and second in turn

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
