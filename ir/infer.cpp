// Checks that every call shares, and inference of the regular families: pointwise, reductions, random.
#include "ir/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/custom_op.h"
#include "ir/infer_call.h"
#include "ir/op_traits.h"
#include "ir/ops/reduce.h"

namespace fermata {
namespace {

std::string axis_note(std::size_t axis, std::int64_t size) { return fmt::format("axis {} is {}", axis, size); }

std::string axis_count(unsigned rank) {
  if (rank == 0) return "a 0-d tensor";
  return fmt::format("{} {}", rank, rank == 1 ? "axis" : "axes");
}

/// The index of the operand that gives a pointwise op its dtype: `where` takes it from what it chooses between.
std::size_t first_value_operand(const InferCall& call) { return info(call.op).rule == DTypeRule::choose ? 1 : 0; }

DType pointwise_dtype(const InferCall& call) {
  const DTypeRule rule = info(call.op).rule;
  const std::size_t first = first_value_operand(call);
  if (first == 1 && !apply_rule(DTypeRule::truth, call.operand(0).dtype)) call.refuse_dtype(0);
  if (first >= call.operands.size()) {
    call.require_wanted_dtype(kNumbersOrBoolean, "a number or bool");
    return call.wanted.dtype;
  }
  std::optional<RuleResult> common;
  for (std::size_t i = first; i < call.operands.size(); ++i) {
    const auto accepted = apply_rule(rule, call.operand(i).dtype);
    if (!accepted) call.refuse_dtype(i);
    if (common && common->operand != accepted->operand) call.require_same_dtype(first, i);
    common = accepted;
  }
  return common->result;
}

/// Errors name two operands: the first one before operand i that clashes with it.
[[noreturn]] void fail_broadcast(const InferCall& call, std::size_t i) {
  std::size_t other = 0;
  while (broadcast_shapes(call.operand(other).shape, call.operand(i).shape)) ++other;
  call.broadcast(call.operand(other).shape, call.operand(i).shape, other, i);
  throw_internal(call.headline("shapes that do broadcast"), call.where);
}

TensorType infer_pointwise(const InferCall& call) {
  const auto declared = static_cast<std::size_t>(info(call.op).operands);
  if (call.operands.empty() || call.operands.size() > declared)
    throw_internal(call.headline("wrong number of tensor operands"), call.where);
  // Recording asks this for every op, nearly always with equal shapes: that way allocates and checks nothing.
  TensorType result{pointwise_dtype(call), call.operand(0).shape};
  bool grown = byte_size(result.dtype) > byte_size(call.operand(0).dtype);
  for (std::size_t i = 1; i < call.operands.size(); ++i) {
    if (call.operand(i).shape == result.shape) continue;
    const auto common = broadcast_shapes(result.shape, call.operand(i).shape);
    if (!common) fail_broadcast(call, i);
    grown = true;
    result.shape = *common;
  }
  if (grown) check_shape(name(call.op), result.shape, result.dtype, call.where);
  return result;
}

TensorType infer_reduce(const InferCall& call) {
  if (call.operands.size() != 1 || call.attributes.size() != 2)
    throw_internal(call.headline("wrong number of operands or attributes"), call.where);
  const TensorType& x = call.operand(0);
  const auto accepted = apply_rule(info(call.op).rule, x.dtype);
  if (!accepted) call.refuse_dtype(0);
  const auto op = decode<ops::Reduction>({call.attributes, {}, {}, {}});
  const std::uint64_t mask = op.axes.value;
  if (mask >> x.shape.rank() != 0)
    normalize_axis(name(call.op), static_cast<std::int64_t>(std::bit_width(mask)) - 1, x, call.where);
  const bool is_argument = info(call.op).rule == DTypeRule::index;
  const auto reduced = static_cast<unsigned>(std::popcount(mask));
  if (is_argument && reduced != 1 && reduced != x.shape.rank())
    call.fail<ValueError>(1301, "ValueError", "takes one axis or all of them");
  const bool needs_elements = is_argument || call.op == Op::max || call.op == Op::min;
  Shape shape;
  for (unsigned axis = 0; axis < x.shape.rank(); ++axis) {
    if (!op.is_reduced(axis))
      shape.push_back(x.shape[axis]);
    else if (op.keepdims.value)
      shape.push_back(1);
    if (op.is_reduced(axis) && x.shape[axis] == 0 && needs_elements)
      call.fail<ShapeError>(1009, "ShapeError", "no elements", {axis_note(axis, 0)});
  }
  return call.result(accepted->result, shape);
}

TensorType infer_random(const InferCall& call) {
  call.require_wanted_dtype(kFloating, "floating");
  return call.result(call.wanted.dtype, call.wanted.shape);
}

TensorType infer_irregular(const InferCall& call) {
  const OpTraits& op = traits(call.op);
  const std::size_t given = call.operands.size();
  if (given < op.least_operands || (!op.takes_any_operands && given > op.operands.size()) ||
      !attribute_list_length(op, call.attributes.size()))
    throw_internal(call.headline("wrong number of operands or attributes"), call.where);
  if (op.subgraphs.size() != (call.subgraphs == nullptr ? 0 : call.subgraphs->size()))
    call.fail<ValueError>(1766, "ValueError", "is called without the functions that a node of it owns");
  return op.infer(call);
}

}  // namespace

std::string InferCall::headline(std::string_view what) const { return fmt::format("{}: {}", name(op), what); }

std::string_view InferCall::label(std::size_t i) const {
  static constexpr std::string_view kBinary[] = {"lhs", "rhs"};
  const auto named = traits(op).operands;
  if (!named.empty()) return named[std::min(i, named.size() - 1)].name;
  return operands.size() == 2 ? kBinary[i] : "x";
}

std::vector<ErrorOperand> InferCall::lines(const std::vector<std::string>& notes) const {
  std::vector<ErrorOperand> lines;
  for (std::size_t i = 0; i < operands.size(); ++i)
    lines.push_back({label(i), to_string(operand(i).dtype, operand(i).shape), i < notes.size() ? notes[i] : ""});
  return lines;
}

unsigned InferCall::axis(std::int64_t given, const TensorType& of) const {
  return normalize_axis(name(op), given, of, where);
}

void InferCall::require_positive(std::int64_t value, std::string_view what) const {
  if (value < 1) fail<ValueError>(1370, "ValueError", fmt::format("{} is {}, below 1", what, value));
}

void InferCall::refuse_dtype(std::size_t i) const {
  const DType dtype = operand(i).dtype;
  if (is_quantized(dtype))
    fail<UnsupportedError>(2004, "UnsupportedError", fmt::format("does not compute with {}", name(dtype)));
  fail<DTypeError>(1101, "DTypeError", fmt::format("does not take {}", name(dtype)), {},
                   dtype == DType::boolean ? "convert it first, for example to i32"
                   : is_small(dtype)       ? fmt::format("convert it first, to {}", name(arithmetic_dtype(dtype)))
                                           : "");
}

void InferCall::require_same_dtype(std::size_t i, std::size_t j) const {
  const DType a = operand(i).dtype, b = operand(j).dtype;
  if (a == b) return;
  fail<DTypeError>(1102, "DTypeError", fmt::format("operands differ in dtype ({} and {})", name(a), name(b)), {},
                   promote(a, b) ? fmt::format("cast both to {}", name(*promote(a, b))) : "");
}

void InferCall::require_index_dtype() const {
  if (is_integer(operand(1).dtype)) return;
  fail<DTypeError>(1103, "DTypeError", fmt::format("positions must be integers, not {}", name(operand(1).dtype)));
}

void InferCall::require_wanted_dtype(DTypeSet accepted, std::string_view description) const {
  if (accepted.has(wanted.dtype)) return;
  if (is_quantized(wanted.dtype))
    fail<UnsupportedError>(2004, "UnsupportedError", fmt::format("does not compute with {}", name(wanted.dtype)));
  fail<DTypeError>(1104, "DTypeError", fmt::format("the result must be {}, not {}", description, name(wanted.dtype)));
}

TensorType InferCall::result(DType dtype, const Shape& shape) const {
  check_shape(name(op), shape, dtype, where);
  return {dtype, shape};
}

Shape InferCall::broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b, std::size_t i,
                           std::size_t j) const {
  if (const auto common = broadcast_shapes(a, b)) return *common;
  for (std::size_t back = 1;; ++back) {
    const std::int64_t left = a[a.size() - back], right = b[b.size() - back];
    if (left == right || left == 1 || right == 1) continue;
    std::vector<std::string> notes(operands.size());
    notes[i] = axis_note(a.size() - back, left), notes[j] = axis_note(b.size() - back, right);
    fail<ShapeError>(1001, "ShapeError", fmt::format("shapes do not broadcast ({} and {})", left, right), notes);
  }
}

std::int64_t check_shape(std::string_view op, std::span<const std::int64_t> sizes, DType dtype,
                         std::source_location where) {
  const auto fail = [&](int code, const std::string& what, const std::string& note) {
    throw ShapeError(code, format_error(code, "ShapeError", fmt::format("{}: {}", op, what),
                                        {{"shape", to_string(dtype, sizes), note}}, where));
  };
  if (sizes.size() > kMaxRank) fail(1003, fmt::format("{} axes, more than {}", sizes.size(), kMaxRank), "");
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] < 0) fail(1002, "a size is negative", axis_note(i, sizes[i]));
  const auto count = checked_element_count(sizes);
  std::int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<std::int64_t>(byte_size(dtype)), &bytes))
    fail(1005, "too many elements for a 64-bit size", "");
  return *count;
}

unsigned normalize_axis(std::string_view op, std::int64_t axis, const TensorType& operand, std::source_location where) {
  const std::int64_t rank = operand.shape.rank();
  if (axis >= -rank && axis < rank) return static_cast<unsigned>(axis < 0 ? axis + rank : axis);
  throw IndexError(
      1201, format_error(1201, "IndexError",
                         fmt::format("{}: axis {} is out of range for {}", op, axis, axis_count(operand.shape.rank())),
                         {{"x", to_string(operand.dtype, operand.shape), ""}}, where,
                         rank > 0 ? fmt::format("axes go from {} to {}", -rank, rank - 1) : ""));
}

std::uint16_t axes_mask(std::string_view op, std::span<const std::int64_t> axes, const TensorType& operand,
                        std::source_location where) {
  if (axes.empty()) return static_cast<std::uint16_t>((1u << operand.shape.rank()) - 1u);
  unsigned mask = 0;
  for (const std::int64_t given : axes) {
    const unsigned axis = normalize_axis(op, given, operand, where);
    if ((mask >> axis & 1u) != 0)
      throw IndexError(1202, format_error(1202, "IndexError",
                                          fmt::format("{}: axis {} is named twice in {}", op, axis, to_string(axes)),
                                          {{"x", to_string(operand.dtype, operand.shape), ""}}, where));
    mask |= 1u << axis;
  }
  return static_cast<std::uint16_t>(mask);
}

TensorType infer(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                 const TensorType& wanted, std::source_location where, const Subgraphs* subgraphs) {
  const InferCall call{op, operands, attributes, wanted, where, subgraphs};
  switch (family(op)) {
    case Family::unary:
    case Family::binary:
    case Family::ternary: return infer_pointwise(call);
    case Family::reduce: return infer_reduce(call);
    case Family::random: return infer_random(call);
    case Family::irregular: return infer_irregular(call);
    case Family::external: return infer_external(op, operands, attributes, where);
    case Family::composite: break;
  }
  throw_internal(call.headline("a composite op has no result type"), where);
}

}  // namespace fermata
