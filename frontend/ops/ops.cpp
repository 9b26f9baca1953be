// See fermata/ops.h: public functions become calls through the kernel table.
#include "fermata/ops.h"

#include <fmt/format.h>

#include <optional>

#include "dispatch/operator.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
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

Tensor unary_slowly(Op op, const Operand& x) {
  const Tensor tensor = lifted(op, x, nullptr, 0);
  return Dispatcher<UnaryCall>::call(operator_entry(op), x.where(), Operand(tensor, x.where()));
}
Tensor binary_slowly(Op op, const Operand& lhs, const Operand& rhs) {
  const Operand* others[] = {&rhs};
  const Tensor tensor = lifted(op, lhs, others, 1);
  return Dispatcher<BinaryCall>::call(operator_entry(op), lhs.where(), Operand(tensor, lhs.where()), rhs);
}

/// pow with one of the exponents that are worth an op of their own, where that gives the same dtype.
std::optional<Tensor> special_power(const Operand& x, const Operand& exponent) {
  if (!is_defined_tensor(x) || exponent.is_tensor() || !is_inexact(x.tensor().dtype())) return std::nullopt;
  const double e = exponent.scalar().as_double();
  if (e == 2) return detail::pointwise(Op::square, x);
  if (e == 0.5) return detail::pointwise(Op::sqrt, x);
  if (e == -1) return detail::pointwise(Op::reciprocal, x);
  if (e == 3) return x * x * x;
  return std::nullopt;
}

/// All in the promotion of their dtypes.
std::vector<Tensor> promoted(Op op, std::span<const Tensor> tensors, Location where) {
  std::vector<Tensor> result(tensors.begin(), tensors.end());
  for (const Tensor& t : tensors) require_defined(op, {t, where});
  if (tensors.empty()) return result;
  std::optional<DType> common = tensors[0].dtype();
  for (const Tensor& t : tensors)
    if (common) common = promote(*common, t.dtype());
  if (!common) return result;  // inference names the two that do not go together
  for (Tensor& t : result) t = astype(t, *common, where);
  return result;
}

/// Autocast makes the operands of a matrix product equal itself: a narrow one should not be widened first.
bool narrows(const Tensor& x) {
  return x.defined() && x.rank() >= 2 && is_floating(x.dtype()) && x.dtype() != DType::f64;
}

/// The elements whose column less row is compared with k, the rest 0.
Tensor triangle(std::string_view function, Op keep, const Tensor& x, std::int64_t k, Location where) {
  require_defined(function, x, where);
  if (x.rank() < 2)
    throw ShapeError(
        1015, format_error(1015, "ShapeError", fmt::format("{}: a matrix has two axes", function), describe(x), where));
  const Shape matrix{x.size(-2), x.size(-1)};
  const Tensor difference = subtract({iota(matrix, 1, device(x), where), where}, iota(matrix, 0, device(x), where));
  const Tensor kept = detail::pointwise(keep, {difference, where}, k);
  return fermata::where({kept, where}, x, 0);
}

}  // namespace

Tensor detail::pointwise(Op op, const Operand& x) {
  if (!is_defined_tensor(x)) [[unlikely]]
    return unary_slowly(op, x);
  return Dispatcher<UnaryCall>::last_call(operator_entry(op), x.where(), x);
}

Tensor detail::pointwise(Op op, const Operand& lhs, const Operand& rhs) {
  const bool left = is_defined_tensor(lhs), right = is_defined_tensor(rhs);
  if (!(left && right) && !(left && !rhs.is_tensor()) && !(right && !lhs.is_tensor())) [[unlikely]]
    return binary_slowly(op, lhs, rhs);
  if (op == Op::pow) {
    const Tensor base = left ? autocast_operand(op, lhs.tensor(), lhs.where()) : Tensor();
    const Operand cast = left ? Operand(base, lhs.where()) : lhs;
    if (auto special = special_power(cast, rhs)) return *std::move(special);
  }
  return Dispatcher<BinaryCall>::last_call(operator_entry(op), lhs.where(), lhs, rhs);
}

Tensor detail::pointwise(Op op, const Operand& a, const Operand& b, const Operand& c) {
  const Operand* others[] = {&b, &c};
  const Tensor condition = lifted(op, a, others, 2);
  return Dispatcher<TernaryCall>::last_call(operator_entry(op), a.where(), Operand(condition, a.where()), b, c);
}

Tensor clip(const Operand& x, const Operand& low, const Operand& high) {
  const Tensor above = maximum(x, low);
  return minimum({above, x.where()}, high);
}

Tensor astype(const Tensor& x, DType dtype, Location where) {
  require_defined(Op::cast, {x, where});
  if (x.dtype() == dtype) return x;
  return general_call(Op::cast, {&x, 1}, {.wanted = {dtype, x.shape()}, .integers = {}, .scalars = {}}, where);
}

Tensor copy(const Tensor& x, Location where) { return general_call(Op::copy, {&x, 1}, {}, where); }

Tensor matmul(const Tensor& lhs, const Tensor& rhs, Location where) {
  if (lhs.defined() && rhs.defined() && lhs.dtype() == rhs.dtype() && lhs.rank() >= 2 && rhs.rank() >= 2) [[likely]]
    return general_call(Op::matmul, BorrowedTensors(lhs, rhs), {}, where);
  const Tensor given[] = {lhs, rhs};
  std::vector<Tensor> operands = autocast_enabled() && narrows(lhs) && narrows(rhs)
                                     ? std::vector(std::begin(given), std::end(given))
                                     : promoted(Op::matmul, given, where);
  // Kernels see matrices: a vector gets its missing axis, which goes again. Errors speak of what the caller gave.
  const bool row = lhs.rank() == 1, column = rhs.rank() == 1;
  // Those of wrapper tensors come from their kernels, which know what they are made of.
  const bool compound = ((lhs.keys() | rhs.keys()) & kCompoundKeys).bits != 0;
  if ((row || column) && !compound)
    infer(Op::matmul, std::vector{type_of(operands[0]), type_of(operands[1])}, {}, {}, where);
  if (row) operands[0] = expand_dims(operands[0], 0, where);
  if (column) operands[1] = expand_dims(operands[1], 1, where);
  const Tensor product = general_call(Op::matmul, operands, {}, where);
  if (row && column) return squeeze(product, {-2, -1}, where);
  return row ? squeeze(product, -2, where) : column ? squeeze(product, -1, where) : product;
}

Tensor dot(const Tensor& lhs, const Tensor& rhs, Location where) {
  require_defined(Op::matmul, {lhs, where}), require_defined(Op::matmul, {rhs, where});
  if (lhs.rank() != 1 || rhs.rank() != 1)
    throw ShapeError(1015, format_error(1015, "ShapeError", "dot: a vector has one axis", describe(lhs, rhs), where,
                                        "matmul takes matrices"));
  return matmul(lhs, rhs, where);
}

Tensor concat(std::span<const Tensor> tensors, std::int64_t axis, Location where) {
  const std::vector<Tensor> operands = promoted(Op::concat, tensors, where);
  if (!tensors.empty()) axis = normalize_axis("concat", axis, type_of(tensors[0]), where);
  return general_call(Op::concat, operands, {.wanted = {}, .integers = {&axis, 1}, .scalars = {}}, where);
}
Tensor concat(std::initializer_list<Tensor> tensors, std::int64_t axis, Location where) {
  return concat(std::span(std::data(tensors), tensors.size()), axis, where);
}

Tensor stack(std::span<const Tensor> tensors, std::int64_t axis, Location where) {
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    require_defined(Op::concat, {t, where});
    if (t.shape() != tensors[0].shape())
      throw ShapeError(1016, format_error(1016, "ShapeError", "stack: shapes differ", describe(tensors[0], t), where));
    parts.push_back(expand_dims(t, axis, where));
  }
  return concat(parts, axis, where);
}
Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t axis, Location where) {
  return stack(std::span(std::data(tensors), tensors.size()), axis, where);
}

Tensor take(const Tensor& x, const Tensor& index, std::int64_t axis, Location where) {
  require_defined(Op::take, {x, where}), require_defined(Op::take, {index, where});
  axis = normalize_axis("take", axis, type_of(x), where);
  const Tensor operands[] = {x, index};
  return general_call(Op::take, operands, {.wanted = {}, .integers = {&axis, 1}, .scalars = {}}, where);
}

Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis, Location where) {
  for (const Tensor* t : {&x, &index, &source}) require_defined(Op::index_add, {*t, where});
  axis = normalize_axis("index_add", axis, type_of(x), where);
  const Tensor operands[] = {x, index, astype(source, x.dtype(), where)};
  return general_call(Op::index_add, operands, {.wanted = {}, .integers = {&axis, 1}, .scalars = {}}, where);
}

Tensor tril(const Tensor& x, std::int64_t k, Location where) { return triangle("tril", Op::less_equal, x, k, where); }
Tensor triu(const Tensor& x, std::int64_t k, Location where) {
  return triangle("triu", Op::greater_equal, x, k, where);
}

}  // namespace fermata
