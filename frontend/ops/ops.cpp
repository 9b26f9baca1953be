// See fermata/ops.h: public functions become calls through the kernel table.
#include "fermata/ops.h"

#include <fmt/format.h>

#include <optional>

#include "dispatch/operator.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/views.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "frontend/transforms/autocast/autocast.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// Operands that the fast path does not take: undefined tensors, which are an error, and calls of numbers only, of
/// which the first becomes a 0-d tensor.
Tensor lifted(Op op, const Operand& first, const Operand* others[], std::size_t count) {
  require_defined(op, first);
  for (std::size_t i = 0; i < count; ++i) require_defined(op, *others[i]);
  if (first.is_tensor()) return first.tensor();
  return full({}, first.scalar(), {}, first.where());
}

Tensor unary_slow_path(Op op, const Operand& x) {
  const Tensor tensor = lifted(op, x, nullptr, 0);
  return Dispatcher<UnaryCall>::call(operator_entry(op), x.where(), Operand(tensor, x.where()));
}
Tensor binary_slow_path(Op op, const Operand& lhs, const Operand& rhs) {
  const Operand* others[] = {&rhs};
  const Tensor tensor = lifted(op, lhs, others, 1);
  return Dispatcher<BinaryCall>::call(operator_entry(op), lhs.where(), Operand(tensor, lhs.where()), rhs);
}

/// A power of integers by a few products; the loop of the op's kernel goes through all bits of an exponent.
Tensor power_of_integers(const Operand& x, std::int64_t exponent) {
  if (exponent == 1) return x.tensor();
  const Tensor half = power_of_integers(x, exponent / 2);
  const Tensor squared = detail::pointwise(Op::multiply, {half, x.where()}, {half, x.where()});
  return exponent % 2 == 0 ? squared : detail::pointwise(Op::multiply, {squared, x.where()}, x);
}

/// pow with one of the exponents that are worth another op, where that gives the same dtype.
std::optional<Tensor> special_power(const Operand& x, const Operand& exponent) {
  if (!is_defined_tensor(x) || exponent.is_tensor()) return std::nullopt;
  const Scalar& number = exponent.scalar();
  const bool is_whole = number.kind == DTypeKind::signed_integer || number.kind == DTypeKind::unsigned_integer;
  if (constexpr std::int64_t kLargest = 16; is_integer(x.tensor().dtype()) && is_whole)
    return number.integer >= 2 && number.integer <= kLargest ? std::optional(power_of_integers(x, number.integer))
                                                             : std::nullopt;
  if (!is_inexact(x.tensor().dtype())) return std::nullopt;
  const double e = exponent.scalar().as_double();
  if (e == 2) return detail::pointwise(Op::square, x);
  if (e == 0.5) return detail::pointwise(Op::sqrt, x);
  if (e == -1) return detail::pointwise(Op::reciprocal, x);
  if (e == 3) return x * x * x;
  return std::nullopt;
}

/// The elements whose column less row is compared with k, the rest 0.
Tensor triangle(std::string_view function, Op keep, const Tensor& x, std::int64_t k, Location where) {
  require_defined(function, x, where);
  if (x.rank() < 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", fmt::format("{}: a matrix must have two axes", function),
                                        describe(x), where));
  const Shape matrix{x.size(-2), x.size(-1)};
  const Tensor difference = subtract({iota(matrix, 1, device(x), where), where}, iota(matrix, 0, device(x), where));
  const Tensor kept = detail::pointwise(keep, {difference, where}, k);
  return fermata::where({kept, where}, x, false);  // a number would make bool an integer
}

}  // namespace

Tensor detail::pointwise(Op op, const Operand& x) try {
  if (!is_defined_tensor(x)) [[unlikely]]
    return unary_slow_path(op, x);
  return Dispatcher<UnaryCall>::last_call(operator_entry(op), x.where(), x);
} catch (const std::bad_alloc&) { throw_no_memory(name(op), x.where()); }

Tensor detail::pointwise(Op op, const Operand& lhs, const Operand& rhs) try {
  const bool left = is_defined_tensor(lhs), right = is_defined_tensor(rhs);
  if (!(left && right) && !(left && !rhs.is_tensor()) && !(right && !lhs.is_tensor())) [[unlikely]]
    return binary_slow_path(op, lhs, rhs);
  if (op == Op::pow) {
    const Tensor base = left ? autocast_operand(op, lhs.tensor(), lhs.where()) : Tensor();
    const Operand cast = left ? Operand(base, lhs.where()) : lhs;
    if (auto special = special_power(cast, rhs)) {
      if (Tensor* const temporary = lhs.expiring()) *temporary = Tensor();
      return *std::move(special);
    }
  }
  return Dispatcher<BinaryCall>::last_call(operator_entry(op), lhs.where(), lhs, rhs);
} catch (const std::bad_alloc&) { throw_no_memory(name(op), lhs.where()); }

Tensor detail::pointwise(Op op, const Operand& a, const Operand& b, const Operand& c) try {
  const Operand* others[] = {&b, &c};
  const Tensor condition = lifted(op, a, others, 2);
  return Dispatcher<TernaryCall>::last_call(operator_entry(op), a.where(), Operand(condition, a.where()), b, c);
} catch (const std::bad_alloc&) { throw_no_memory(name(op), a.where()); }

Tensor clip(const Operand& x, const Operand& low, const Operand& high) {
  Tensor above = maximum(x.for_last_use(), low.for_last_use());
  return minimum({std::move(above), x.where()}, high.for_last_use());
}

Tensor astype(const Tensor& x, DType dtype, Location where) {
  require_defined(Op::cast, {x, where});
  if (x.dtype() == dtype) return x;
  return general_call(Op::cast, {&x, 1}, {.wanted = {dtype, x.shape()}, .integers = {}, .scalars = {}}, where);
}

Tensor copy(const Tensor& x, Location where) { return general_call(Op::copy, {&x, 1}, {}, where); }

Tensor tril(const Tensor& x, std::int64_t k, Location where) { return triangle("tril", Op::less_equal, x, k, where); }
Tensor triu(const Tensor& x, std::int64_t k, Location where) {
  return triangle("triu", Op::greater_equal, x, k, where);
}

namespace vjp {

FERMATA_OP_RULES(cast, batched_by_type, kSameGradient);
FERMATA_OP_RULES(copy, batched_by_type, kSameGradient);

}  // namespace vjp

}  // namespace fermata
