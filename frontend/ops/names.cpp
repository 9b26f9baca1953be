// See fermata/names.h and fermata/compare.h.
#include "fermata/names.h"

#include <fmt/format.h>

#include <limits>

#include "fermata/compare.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/dtypes.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

/// What closeness is computed in.
Tensor compared(const Tensor& x, DType dtype, Location where) {
  return astype(x,
                is_complex(dtype)                          ? dtype
                : dtype == DType::f64 || is_integer(dtype) ? DType::f64
                                                           : DType::f32,
                where);
}

std::vector<Tensor> each_at_least_1d(std::span<const Tensor> tensors, Location where) {
  std::vector<Tensor> all;
  for (const Tensor& t : tensors) all.push_back(atleast_1d(t, where));
  return all;
}

}  // namespace

Tensor isclose(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan, Location where) {
  require_defined("isclose", x, where), require_defined("isclose", y, where);
  const DType common = result_type({x, where}, {y, where});
  const Tensor a = compared(x, common, where), b = compared(y, common, where);
  const Tensor distance = abs({subtract({a, where}, b), where});
  const Tensor allowed = add({multiply({abs({b, where}), where}, rtol), where}, atol);
  const Tensor near = logical_and({less_equal({distance, where}, allowed), where}, isfinite({b, where}));
  const Tensor close = logical_or({near, where}, equal({a, where}, b));
  if (!equal_nan) return close;
  return logical_or({close, where}, logical_and({isnan({a, where}), where}, isnan({b, where})));
}
bool allclose(const Tensor& x, const Tensor& y, double rtol, double atol, bool equal_nan, Location where) {
  require_defined("allclose", x, where), require_defined("allclose", y, where);
  return all(isclose(x, y, rtol, atol, equal_nan, where), {}, false, where).item<bool>(where);
}
bool array_equal(const Tensor& x, const Tensor& y, Location where) {
  require_defined("array_equal", x, where), require_defined("array_equal", y, where);
  return x.shape() == y.shape() && all(equal({x, where}, y), {}, false, where).item<bool>(where);
}

Tensor cat(std::span<const Tensor> tensors, std::int64_t axis, Location where) { return concat(tensors, axis, where); }
Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t axis, Location where) {
  return concat(tensors, axis, where);
}
Tensor concatenate(std::span<const Tensor> tensors, std::int64_t axis, Location where) {
  return concat(tensors, axis, where);
}
Tensor concatenate(std::initializer_list<Tensor> tensors, std::int64_t axis, Location where) {
  return concat(tensors, axis, where);
}
Tensor vstack(std::span<const Tensor> tensors, Location where) {
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) rows.push_back(atleast_2d(t, where));
  return concat(rows, 0, where);
}
Tensor vstack(std::initializer_list<Tensor> tensors, Location where) {
  return vstack(std::span(std::data(tensors), tensors.size()), where);
}
Tensor hstack(std::span<const Tensor> tensors, Location where) {
  const std::vector<Tensor> parts = each_at_least_1d(tensors, where);
  return concat(parts, !parts.empty() && parts[0].rank() > 1 ? 1 : 0, where);
}
Tensor hstack(std::initializer_list<Tensor> tensors, Location where) {
  return hstack(std::span(std::data(tensors), tensors.size()), where);
}

#define FERMATA_UNARY_NAME(name, function) \
  Tensor name(const Operand& x) { return function(x.for_last_use()); }
#define FERMATA_BINARY_NAME(name, function) \
  Tensor name(const Operand& lhs, const Operand& rhs) { return function(lhs.for_last_use(), rhs.for_last_use()); }
FERMATA_BINARY_NAME(sub, subtract)
FERMATA_BINARY_NAME(mul, multiply)
FERMATA_BINARY_NAME(div, divide)
FERMATA_BINARY_NAME(true_divide, divide)
FERMATA_BINARY_NAME(power, pow)
FERMATA_BINARY_NAME(mod, remainder)
FERMATA_UNARY_NAME(neg, negative)
FERMATA_UNARY_NAME(absolute, abs)
FERMATA_UNARY_NAME(arcsin, asin)
FERMATA_UNARY_NAME(arccos, acos)
FERMATA_UNARY_NAME(arctan, atan)
FERMATA_BINARY_NAME(arctan2, atan2)
FERMATA_UNARY_NAME(arcsinh, asinh)
FERMATA_UNARY_NAME(arccosh, acosh)
FERMATA_UNARY_NAME(arctanh, atanh)
FERMATA_BINARY_NAME(eq, equal)
FERMATA_BINARY_NAME(ne, not_equal)
FERMATA_BINARY_NAME(lt, less)
FERMATA_BINARY_NAME(le, less_equal)
FERMATA_BINARY_NAME(gt, greater)
FERMATA_BINARY_NAME(ge, greater_equal)
#undef FERMATA_UNARY_NAME
#undef FERMATA_BINARY_NAME

Tensor clamp(const Operand& x, const Operand& low, const Operand& high) {
  return clip(x.for_last_use(), low.for_last_use(), high.for_last_use());
}
Tensor nan_to_num(const Tensor& x, double nan, Location where) {
  require_defined("nan_to_num", x, where);
  if (!is_floating(x.dtype())) return x;
  const FloatInfo limits = finfo(x.dtype(), where);
  const Tensor finite = clip({x, where}, limits.min, limits.max);
  return fermata::where({isnan({x, where}), where}, nan, finite);
}

Tensor amax(const Tensor& x, const IntegerList& axes, bool keepdims, Location where) {
  return max(x, axes, keepdims, where);
}
Tensor amin(const Tensor& x, const IntegerList& axes, bool keepdims, Location where) {
  return min(x, axes, keepdims, where);
}
Tensor norm(const Tensor& x, double ord, const IntegerList& axes, bool keepdims, Location where) {
  return linalg::vector_norm(x, axes, keepdims, ord, where);
}
Tensor cumsum(const Tensor& x, std::optional<std::int64_t> axis, Location where) {
  return cumulative_sum(x, axis, false, where);
}
Tensor cumprod(const Tensor& x, std::optional<std::int64_t> axis, Location where) {
  return cumulative_prod(x, axis, false, where);
}
Tensor unique(const Tensor& x, Location where) { return unique_values(x, {}, where); }

Tensor mm(const Tensor& lhs, const Tensor& rhs, Location where) { return matmul(lhs, rhs, where); }
Tensor bmm(const Tensor& lhs, const Tensor& rhs, Location where) { return matmul(lhs, rhs, where); }
Tensor inner(const Tensor& lhs, const Tensor& rhs, Location where) {
  require_defined("inner", lhs, where), require_defined("inner", rhs, where);
  if (lhs.rank() == 0 || rhs.rank() == 0) return multiply({lhs, where}, rhs);
  return tensordot(lhs, rhs, -1, -1, where);
}
Tensor diag(const Tensor& x, std::int64_t k, Location where) {
  require_defined("diag", x, where);
  if (x.rank() == 2) return linalg::diagonal(x, k, where);
  if (x.rank() != 1)
    throw ShapeError(1015,
                     format_error(1015, "ShapeError", "diag: x must be a vector or a matrix", describe(x), where));
  const std::int64_t count = x.size(0, where) + (k < 0 ? -k : k);
  const Shape square{count, count};
  // Row i of the result has element i of x (of the row, below the diagonal less -k) in column i + k.
  const Tensor column = iota(square, 1, device(x), where), row = iota(square, 0, device(x), where);
  const Tensor on = equal({subtract({column, where}, row), where}, k);
  const std::int64_t before = k < 0 ? -k : 0, after = k < 0 ? 0 : k;
  const Tensor zero_before = full({before}, 0, x.dtype(), device(x), where);
  const Tensor zero_after = full({after}, 0, x.dtype(), device(x), where);
  const Tensor by_row = expand_dims(concat({zero_before, x, zero_after}, 0, where), 1, where);
  return fermata::where({on, where}, by_row, full({}, 0, x.dtype(), device(x), where));
}

Tensor unsqueeze(const Tensor& x, std::int64_t axis, Location where) { return expand_dims(x, axis, where); }
Tensor ravel(const Tensor& x, Location where) { return flatten(x, where); }
std::vector<Tensor> unbind(const Tensor& x, std::int64_t axis, Location where) { return unstack(x, axis, where); }
std::vector<Tensor> chunk(const Tensor& x, std::int64_t parts, std::int64_t axis, Location where) {
  require_defined("chunk", x, where);
  const std::int64_t size = x.shape()[normalize_axis("chunk", axis, type_of(x), where)];
  if (parts < 1)
    throw ShapeError(1019, format_error(1019, "ShapeError", fmt::format("chunk: {} parts", parts), describe(x), where));
  const std::int64_t each = std::max<std::int64_t>((size + parts - 1) / parts, 1);
  std::vector<std::int64_t> sizes;
  for (std::int64_t at = 0; at < size; at += each) sizes.push_back(std::min(each, size - at));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, axis, where);
}
Tensor index_select(const Tensor& x, std::int64_t axis, const Tensor& index, Location where) {
  return take(x, index, axis, where);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value, Location where) {
  require_defined("masked_fill", x, where), require_defined("masked_fill", mask, where);
  return fermata::where({mask, where}, value, x);
}

Tensor randperm(std::int64_t count, Generator& from, Location where) { return permutation(count, from, where); }
Tensor rand_like(const Tensor& x, Location where) {
  require_defined("rand_like", x, where);
  return rand(x.shape(), x.dtype(), device(x), where);
}
Tensor randn_like(const Tensor& x, Location where) {
  require_defined("randn_like", x, where);
  return randn(x.shape(), x.dtype(), device(x), where);
}

}  // namespace fermata
