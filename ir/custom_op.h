// Custom operators. Each gets an Op value from kOpCount on; op table queries (name, family, formula, result type) for
// such values are answered from this registry.
//
// Op values are never reused, because graphs and plans may still refer to them. Redefining a name gives its old value.
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

/// The maximum number of custom operators.
inline constexpr std::size_t kMaxExternalOps = 4096;

/// The definition of a custom operator. Operators of family `external` have arbitrary arguments, encoded in their
/// attributes; unary, binary and ternary ones are pointwise, have a formula and fuse like built-in ops.
struct CustomOp {
  std::string name;  // "my::scale"
  Family family = Family::external;
  DTypeRule rule = DTypeRule::none;
  std::string doc;
  std::function<Formula(DType compute)> formula;  // pointwise ops
  /// Infers the result type of an `external` op; throws user errors.
  std::function<TensorType(std::span<const TensorType>, std::span<const std::int64_t>, std::source_location)> infer;
};

/// Returns the Op value of a name, new or existing; InternalError if there are too many.
Op define_external_op(CustomOp op);
/// Mutable state of an op, including built-in ones.
struct OpState {
  std::atomic<std::uint32_t> generation{0};
  std::atomic<Effect> effect{Effect::pure};  // of a custom operator
};
extern constinit std::array<OpState, kOpCount + kMaxExternalOps> op_states;
inline OpState& state_of(Op op) { return op_states[static_cast<std::size_t>(op)]; }
/// The number of changes to an op's definition; part of the key of code compiled for it.
inline std::uint32_t op_generation(Op op) { return state_of(op).generation.load(std::memory_order_relaxed); }
inline void renew_op(Op op) { state_of(op).generation.fetch_add(1, std::memory_order_relaxed); }

inline bool is_external(Op op) { return static_cast<std::size_t>(op) >= kOpCount; }
/// The effect of an op. For built-in ops it is in the op's struct; built-in random ops take key and offset as operands,
/// and are pure.
Effect effect_of(Op op);
/// Sets the effect of a custom operator, from its schema.
inline void set_effect(Op op, Effect effect) { state_of(op).effect.store(effect, std::memory_order_relaxed); }
/// Whether calls have arbitrary arguments, encoded in the node's attributes.
inline bool is_boxed(Op op) { return is_external(op) && family(op) == Family::external; }

// Used by ir/op.h and ir/infer.h.
const OpInfo& external_info(Op op);
const Formula& external_formula(Op op, DType compute);
TensorType infer_external(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                          std::source_location where);
std::optional<Op> external_op_from_name(std::string_view name);

}  // namespace fermata
