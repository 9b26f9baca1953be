// Operators from outside: whoever defines one gets an Op value from kOpCount on, and everything that asks the table of
// an op (name, family, formula, type of the result) is answered from what was registered here.
//
// An Op value is never taken back: graphs and plans may still name it. A name that is defined again gets its old value.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <source_location>
#include <span>
#include <string>

#include "ir/effect.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace fermata {

/// Up to this many operators may be defined by others.
inline constexpr std::size_t kMaxExternalOps = 4096;

/// What is said of an operator. `external` ones have any arguments, encoded in their attributes; unary, binary and
/// ternary ones are pointwise, have a formula and fuse like those of the table.
struct CustomOp {
  std::string name;  // "my::scale"
  Family family = Family::external;
  DTypeRule rule = DTypeRule::none;
  std::string doc;
  std::function<Formula(DType compute)> formula;  // pointwise ops
  /// The type of the result of an `external` op; throws the error of the call.
  std::function<TensorType(std::span<const TensorType>, std::span<const std::int64_t>, std::source_location)> infer;
};

/// The value of a name, new or as before; InternalError when there are too many.
Op define_external_op(CustomOp op);
/// What may change of an op, those of the table included, while the program runs.
struct OpState {
  std::atomic<std::uint32_t> generation{0};
  std::atomic<Effect> effect{Effect::pure};  // of a custom operator
};
extern constinit std::array<OpState, kOpCount + kMaxExternalOps> op_states;
inline OpState& state_of(Op op) { return op_states[static_cast<std::size_t>(op)]; }
/// How often what is known of an op has changed since the program was loaded: part of the key of whatever was compiled
/// for it.
inline std::uint32_t op_generation(Op op) { return state_of(op).generation.load(std::memory_order_relaxed); }
inline void renew_op(Op op) { state_of(op).generation.fetch_add(1, std::memory_order_relaxed); }

inline bool is_external(Op op) { return static_cast<std::size_t>(op) >= kOpCount; }
/// That of an op of the table is in its struct; those that draw numbers take them as operands, and are pure.
Effect effect_of(Op op);
/// Of a custom operator, whose schema says it.
inline void set_effect(Op op, Effect effect) { state_of(op).effect.store(effect, std::memory_order_relaxed); }
/// Calls of a kernel with any arguments, which are encoded in the node's attributes.
inline bool is_boxed(Op op) { return is_external(op) && family(op) == Family::external; }

// What ir/op.h and ir/infer.h ask.
const OpInfo& external_info(Op op);
const Formula& external_formula(Op op, DType compute);
TensorType infer_external(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                          std::source_location where);
std::optional<Op> external_op_from_name(std::string_view name);

}  // namespace fermata
