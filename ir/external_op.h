// Operators from outside: whoever defines one gets an Op value from kOpCount on, and everything that asks the table of an
// op (name, family, formula, type of the result) is answered from what was registered here.
//
// An Op value is never taken back: graphs and plans may still name it. A name that is defined again gets its old value.
#pragma once

#include <functional>
#include <source_location>
#include <span>
#include <string>

#include "ir/infer.h"
#include "ir/op.h"

namespace fermata {

/// Up to this many operators may be defined by others.
inline constexpr std::size_t kMaxExternalOps = 4096;

/// What is said of an operator. `external` ones have any arguments, encoded in their attributes; unary, binary and
/// ternary ones are pointwise, have a formula and fuse like those of the table.
struct ExternalOp {
  std::string name;  // "my::scale"
  Family family = Family::external;
  DTypeRule rule = DTypeRule::none;
  std::string doc;
  std::function<Formula(DType compute)> formula;  // pointwise ops
  /// The type of the result of an `external` op; throws the error of the call.
  std::function<TensorType(std::span<const TensorType>, std::span<const std::int64_t>, std::source_location)> infer;
};

/// The value of a name, new or as before; InternalError when there are too many.
Op define_external_op(ExternalOp op);
/// How many values from kOpCount on are in use.
std::size_t external_op_count();
/// How often a name had been defined before: part of the key of whatever was compiled for it.
std::uint32_t external_generation(Op op);
inline bool is_external(Op op) { return static_cast<std::size_t>(op) >= kOpCount; }

// What ir/op.h and ir/infer.h ask.
const OpInfo& external_info(Op op);
const Formula& external_formula(Op op, DType compute);
TensorType infer_external(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                          std::source_location where);
std::optional<Op> external_op_from_name(std::string_view name);

}  // namespace fermata
