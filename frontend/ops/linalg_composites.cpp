// The functions of fermata/linalg.h that are made of products, sums and views; and what all prepare operands with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/linalg.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/linalg_operands.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata::linalg {

Tensor solvable(const Tensor& x, Location where) {
  return is_integer(x.dtype()) || x.dtype() == DType::boolean ? astype(x, DType::f32, where) : x;
}

std::vector<Tensor> solvable(const Tensor& lhs, const Tensor& rhs, Location where) {
  std::vector<Tensor> both{solvable(lhs, where), solvable(rhs, where)};
  if (const auto common = promote(both[0].dtype(), both[1].dtype()))
    for (Tensor& t : both) t = astype(t, *common, where);
  return both;
}

Tensor squared_magnitude(const Tensor& x, Location where) {
  if (!is_complex(x)) return square({x, where});
  return add({square({real({x, where}), where}), where}, square({imag({x, where}), where}));
}

namespace {

void require_matrix(std::string_view function, const Tensor& x, Location where) {
  require_defined(function, x, where);
  if (x.rank() < 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", fmt::format("{}: a matrix must have two axes", function),
                                        describe(x), where));
}

/// Norms of f16 and bf16 are computed in f32 and rounded once.
Tensor widened(const Tensor& x, Location where) {
  const DType t = is_inexact(x.dtype()) ? compute_dtype(x.dtype()) : DType::f32;
  return astype(x, t, where);
}
Tensor rounded(const Tensor& norm, const Tensor& x, Location where) {
  return is_floating(x.dtype()) ? astype(norm, x.dtype(), where) : norm;
}

/// The square root, with a derivative of 0 at 0.
Tensor root(const Tensor& x, Location where) {
  const Tensor none = equal({x, where}, 0);
  const Tensor safe = fermata::where({none, where}, 1, x);
  return fermata::where({none, where}, 0, sqrt({safe, where}));
}

/// x to a power with a derivative of 0 at 0, for magnitudes.
Tensor power(const Tensor& x, double exponent, Location where) {
  if (exponent < 0) return pow({x, where}, exponent);
  const Tensor none = equal({x, where}, 0);
  const Tensor safe = fermata::where({none, where}, 1, x);
  return fermata::where({none, where}, 0, pow({safe, where}, exponent));
}

Tensor norm_of(const Tensor& x, const IntegerList& axes, bool keepdims, double ord, Location where) {
  const Tensor wide = widened(x, where);
  if (ord == 2) return root(sum(squared_magnitude(wide, where), axes, keepdims, where), where);
  const Tensor size = abs({wide, where});
  if (ord == 0) return sum(astype(not_equal({size, where}, 0), size.dtype(), where), axes, keepdims, where);
  if (ord == 1) return sum(size, axes, keepdims, where);
  if (ord == HUGE_VAL)
    return element_count(x.shape()) == 0 ? sum(size, axes, keepdims, where) : max(size, axes, keepdims, where);
  if (ord == -HUGE_VAL) return min(size, axes, keepdims, where);
  return power(sum(power(size, ord, where), axes, keepdims, where), 1 / ord, where);
}

/// The largest or smallest of numbers that are not negative: 0 is the largest of none, and nothing the smallest.
Tensor extreme(const Tensor& sizes, const IntegerList& axes, bool largest, bool keepdims, const Tensor& x,
               Location where) {
  const auto is_empty = [&](std::int64_t axis) { return sizes.size(axis) == 0; };
  const bool none = std::ranges::any_of(axes, is_empty);
  if (none && largest) return sum(sizes, axes, keepdims, where);
  if (none) throw ShapeError(1009, format_error(1009, "ShapeError", "matrix_norm: no elements", describe(x), where));
  return largest ? max(sizes, axes, keepdims, where) : min(sizes, axes, keepdims, where);
}

/// max or min over two axes one after the other; sums first.
Tensor extreme_of_sums(const Tensor& x, std::int64_t summed, bool largest, bool keepdims, Location where) {
  const Tensor sums = sum(abs({widened(x, where), where}), summed, true, where);
  return extreme(sums, {-2, -1}, largest, keepdims, x, where);
}

Tensor singular_norm(const Tensor& x, double ord, std::string_view name, bool keepdims, Location where) {
  const Tensor s = svdvals(x, where);
  const Tensor norm = name == "nuc" ? sum(s, -1, false, where) : extreme(s, -1, ord > 0, false, x, where);
  return keepdims ? expand_dims(norm, {-2, -1}, where) : norm;
}

[[noreturn]] void throw_order(const std::string& ord, const Tensor& x, Location where) {
  throw ValueError(1396, format_error(1396, "ValueError", fmt::format("matrix_norm: unsupported order {}", ord),
                                      describe(x), where, "use \"fro\", \"nuc\", 1, -1, 2, -2, inf or -inf"));
}

}  // namespace

Tensor vector_norm(const Tensor& x, const IntegerList& axes, bool keepdims, double ord, Location where) {
  require_defined("vector_norm", x, where);
  return rounded(norm_of(x, axes, keepdims, ord, where), x, where);
}

Tensor matrix_norm(const Tensor& x, bool keepdims, std::string_view ord, Location where) {
  require_matrix("matrix_norm", x, where);
  if (ord == "fro") return rounded(norm_of(x, {-2, -1}, keepdims, 2, where), x, where);
  if (ord != "nuc") throw_order(fmt::format("\"{}\"", ord), x, where);
  return rounded(singular_norm(widened(x, where), 0, ord, keepdims, where), x, where);
}

Tensor matrix_norm(const Tensor& x, bool keepdims, double ord, Location where) {
  require_matrix("matrix_norm", x, where);
  const double size = std::fabs(ord);
  if (size != 1 && size != 2 && size != HUGE_VAL) throw_order(fmt::format("{}", ord), x, where);
  const Tensor norm = size == 2 ? singular_norm(widened(x, where), ord, "", keepdims, where)
                                : extreme_of_sums(x, size == 1 ? -2 : -1, ord > 0, keepdims, where);
  return rounded(norm, x, where);
}

Tensor matrix_power(const Tensor& x, std::int64_t n, Location where) {
  require_matrix("matrix_power", x, where);
  if (x.size(-1) != x.size(-2))
    throw ShapeError(1090,
                     format_error(1090, "ShapeError", "matrix_power: the matrix is not square", describe(x), where));
  if (n == 0) return copy(broadcast_to(eye(x.size(-1), {}, x.dtype(), where), x.shape(), where), where);
  Tensor factor = n < 0 ? inv(x, where) : x, result;
  for (auto left = n < 0 ? -static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n); left != 0; left >>= 1) {
    if ((left & 1) != 0) result = result.defined() ? matmul(result, factor, where) : factor;
    if (left > 1) factor = matmul(factor, factor, where);
  }
  return result;
}

Tensor diagonal(const Tensor& x, std::int64_t offset, Location where) {
  require_matrix("diagonal", x, where);
  const std::int64_t m = x.size(-2), n = x.size(-1);
  const std::int64_t row = std::min(std::max<std::int64_t>(-offset, 0), m),
                     column = std::min(std::max<std::int64_t>(offset, 0), n);
  const std::int64_t length = std::min(m - row, n - column);
  Shape flat = x.shape();
  flat[flat.rank() - 2u] = m * n;
  flat = Shape(std::span<const std::int64_t>(flat).first(flat.rank() - 1u));
  // Elements of a diagonal are a row and one more apart, in row-major order.
  const std::int64_t start = row * n + column;
  return slice(reshape(x, flat, where), -1, start, length == 0 ? start : start + (length - 1) * (n + 1) + 1, n + 1,
               where);
}

Tensor trace(const Tensor& x, std::int64_t offset, std::optional<DType> dtype, Location where) {
  require_matrix("trace", x, where);
  const Tensor elements = diagonal(x, offset, where);
  return sum(dtype ? astype(elements, *dtype, where) : elements, -1, false, where);
}

Tensor outer(const Tensor& lhs, const Tensor& rhs, Location where) {
  require_defined("outer", lhs, where), require_defined("outer", rhs, where);
  if (lhs.rank() != 1 || rhs.rank() != 1)
    throw ShapeError(1015,
                     format_error(1015, "ShapeError", "outer: a vector must have one axis", describe(lhs, rhs), where));
  return multiply({expand_dims(lhs, 1, where), where}, rhs);
}

Tensor cross(const Tensor& lhs, const Tensor& rhs, std::int64_t axis, Location where) {
  require_defined("cross", lhs, where), require_defined("cross", rhs, where);
  const auto length = [&](const Tensor& x) {
    return x.shape()[normalize_axis("cross", axis, {x.dtype(), x.shape()}, where)];
  };
  if (length(lhs) != 3 || length(rhs) != 3)
    throw ShapeError(
        1096, format_error(1096, "ShapeError", "cross: vectors must have three elements", describe(lhs, rhs), where));
  // One slice for each: what reads the same slices becomes one kernel.
  std::vector<Tensor> a, b, parts;
  for (std::int64_t i = 0; i < 3; ++i)
    a.push_back(slice(lhs, axis, i, i + 1, 1, where)), b.push_back(slice(rhs, axis, i, i + 1, 1, where));
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts.push_back(subtract({multiply({a[j], where}, b[k]), where}, multiply({a[k], where}, b[j])));
  }
  return concat(parts, axis < 0 ? axis : axis - static_cast<std::int64_t>(lhs.rank()), where);
}

Tensor kron(const Tensor& lhs, const Tensor& rhs, Location where) {
  require_defined("kron", lhs, where), require_defined("kron", rhs, where);
  const unsigned rank = std::max(lhs.rank(), rhs.rank());
  Shape outer_sizes, inner_sizes, result;
  const auto size = [&](const Tensor& x, unsigned axis) {
    const unsigned missing = rank - x.rank();
    return axis < missing ? 1 : x.shape()[axis - missing];
  };
  for (unsigned axis = 0; axis < rank; ++axis) {
    outer_sizes.push_back(size(lhs, axis)), outer_sizes.push_back(1);
    inner_sizes.push_back(1), inner_sizes.push_back(size(rhs, axis));
    result.push_back(size(lhs, axis) * size(rhs, axis));
  }
  const Tensor blocks = multiply({reshape(lhs, outer_sizes, where), where}, reshape(rhs, inner_sizes, where));
  return reshape(blocks, result, where);
}

}  // namespace fermata::linalg
