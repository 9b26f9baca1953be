// tensordot, vecdot and matrix_transpose; einsum is in einsum.cpp. See fermata/products.h.
#include "fermata/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "fermata/complex.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using AxisList = std::vector<std::int64_t>;

[[noreturn]] void throw_axes(int code, const std::string& what, const Tensor& lhs, const Tensor& rhs, Location where) {
  throw ShapeError(code,
                   format_error(code, "ShapeError", fmt::format("tensordot: {}", what), describe(lhs, rhs), where));
}

/// The axes that are not among those of a list.
AxisList others(const AxisList& axes, unsigned rank) {
  AxisList rest;
  for (std::int64_t i = 0; i < rank; ++i)
    if (std::ranges::find(axes, i) == axes.end()) rest.push_back(i);
  return rest;
}
std::int64_t product_of(const Shape& sizes, const AxisList& axes) {
  std::int64_t n = 1;
  for (const std::int64_t axis : axes) n *= sizes[static_cast<std::size_t>(axis)];
  return n;
}

Tensor contract(const Tensor& lhs, const Tensor& rhs, const AxisList& left, const AxisList& right, Location where) {
  const Shape ls = lhs.shape(), rs = rhs.shape();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::int64_t a = ls[static_cast<std::size_t>(left[i])], b = rs[static_cast<std::size_t>(right[i])];
    if (a != b) throw_axes(1004, fmt::format("contracted sizes differ ({} and {})", a, b), lhs, rhs, where);
  }
  const AxisList left_rest = others(left, ls.rank()), right_rest = others(right, rs.rank());
  AxisList left_order = left_rest, right_order = right;
  left_order.insert(left_order.end(), left.begin(), left.end());
  right_order.insert(right_order.end(), right_rest.begin(), right_rest.end());
  Shape result;
  for (const std::int64_t axis : left_rest) result.push_back(ls[static_cast<std::size_t>(axis)]);
  for (const std::int64_t axis : right_rest) result.push_back(rs[static_cast<std::size_t>(axis)]);
  const std::int64_t k = product_of(ls, left);
  const Tensor a = reshape(permute(lhs, left_order, where), {product_of(ls, left_rest), k}, where);
  const Tensor b = reshape(permute(rhs, right_order, where), {k, product_of(rs, right_rest)}, where);
  return reshape(matmul(a, b, where), result, where);
}

AxisList normalized(const IntegerList& axes, const Tensor& x, Location where) {
  AxisList result;
  if (axes.empty()) return result;
  axes_mask("tensordot", axes, {x.dtype(), x.shape()}, where);  // each is there, and once
  for (const std::int64_t axis : axes)
    result.push_back(normalize_axis("tensordot", axis, {x.dtype(), x.shape()}, where));
  return result;
}

}  // namespace

Tensor matrix_transpose(const Tensor& x, Location where) {
  require_defined("matrix_transpose", x, where);
  if (x.rank() < 2)
    throw ShapeError(
        1015, format_error(1015, "ShapeError", "matrix_transpose: a matrix must have two axes", describe(x), where));
  return transpose(x, -2, -1, where);
}

Tensor tensordot(const Tensor& lhs, const Tensor& rhs, std::int64_t axes, Location where) {
  require_defined("tensordot", lhs, where), require_defined("tensordot", rhs, where);
  if (axes < 0)
    throw ValueError(
        1399, format_error(1399, "ValueError", fmt::format("tensordot: {} axes", axes), describe(lhs, rhs), where));
  if (axes > lhs.rank() || axes > rhs.rank())
    throw_axes(1097, fmt::format("fewer than {} axes", axes), lhs, rhs, where);
  AxisList left(static_cast<std::size_t>(axes)), right(left.size());
  std::iota(left.begin(), left.end(), static_cast<std::int64_t>(lhs.rank()) - axes);
  std::iota(right.begin(), right.end(), 0);
  return contract(lhs, rhs, left, right, where);
}

Tensor tensordot(const Tensor& lhs, const Tensor& rhs, const IntegerList& lhs_axes, const IntegerList& rhs_axes,
                 Location where) {
  require_defined("tensordot", lhs, where), require_defined("tensordot", rhs, where);
  if (lhs_axes.size() != rhs_axes.size())
    throw ValueError(
        1399, format_error(1399, "ValueError",
                           fmt::format("tensordot: {} axes of lhs, but {} of rhs", lhs_axes.size(), rhs_axes.size()),
                           describe(lhs, rhs), where));
  return contract(lhs, rhs, normalized(lhs_axes, lhs, where), normalized(rhs_axes, rhs, where), where);
}

Tensor vecdot(const Tensor& lhs, const Tensor& rhs, std::int64_t axis, Location where) {
  require_defined("vecdot", lhs, where), require_defined("vecdot", rhs, where);
  const auto size = [&](const Tensor& x) {
    return x.shape()[normalize_axis("vecdot", axis, {x.dtype(), x.shape()}, where)];
  };
  if (size(lhs) != size(rhs))
    throw ShapeError(1004,
                     format_error(1004, "ShapeError",
                                  fmt::format("vecdot: contracted sizes differ ({} and {})", size(lhs), size(rhs)),
                                  describe(lhs, rhs), where));
  const Tensor left = is_complex(lhs) ? conj({lhs, where}) : lhs;
  const Tensor products = multiply({left, where}, rhs);
  return astype(sum(products, axis < 0 ? axis : axis - static_cast<std::int64_t>(lhs.rank()), false, where),
                products.dtype(), where);
}

}  // namespace fermata
