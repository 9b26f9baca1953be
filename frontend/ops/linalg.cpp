// The functions of fermata/linalg.h that are ops, or take the results of one apart.
#include "fermata/linalg.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/linalg_operands.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata::linalg {
namespace {

Tensor call(Op op, std::span<const Tensor> operands, std::span<const std::int64_t> attributes, Location where) {
  return general_call(op, operands, {.wanted = {}, .integers = attributes, .scalars = {}}, where);
}
Tensor call(Op op, const Tensor& x, Location where, std::span<const std::int64_t> attributes = {}) {
  require_defined(op, {x, where});
  const Tensor operand = solvable(x, where);
  return call(op, {&operand, 1}, attributes, where);
}

/// Rows [begin, begin + count) of what an op has packed.
Tensor rows(const Tensor& packed, std::int64_t begin, std::int64_t count, Location where) {
  return slice(packed, -2, begin, begin + count, 1, where);
}
Tensor row(const Tensor& packed, std::int64_t at, Location where) {
  const Tensor values = select(packed, -2, at, where);
  return is_complex(values) ? real({values, where}) : values;
}

/// A vector on the right is a matrix of one column, for a stack of matrices on the left as well.
Tensor solve_with(Op op, const Tensor& a, const Tensor& b, std::span<const std::int64_t> attributes, Location where) {
  require_defined(op, {a, where}), require_defined(op, {b, where});
  std::vector<Tensor> operands = solvable(a, b, where);
  const bool vector = b.rank() == 1;
  if (vector) operands[1] = expand_dims(operands[1], 1, where);
  const Tensor x = call(op, operands, attributes, where);
  return vector ? squeeze(x, -1, where) : x;
}

double default_tolerance(const Tensor& x) {
  const double epsilon = byte_size(real_dtype(x.dtype())) == 8
                             ? std::numeric_limits<double>::epsilon()
                             : static_cast<double>(std::numeric_limits<float>::epsilon());
  return x.rank() < 2 ? epsilon : epsilon * static_cast<double>(std::max(x.size(-2), x.size(-1)));
}

/// How many of some singular values (a last axis, descending) exceed rtol times the first.
Tensor count_above(const Tensor& s, const Operand& rtol, Location where) {
  if (s.size(-1) == 0) return sum(astype(s, DType::i64, where), -1, false, where);
  const Tensor least = multiply({slice(s, -1, 0, 1, 1, where), where}, rtol);
  return sum(astype(greater({s, where}, least), DType::i64, where), -1, false, where);
}

/// One tolerance for each matrix of a stack, in the real dtype of the stack.
Tensor tolerances(std::string_view function, const Tensor& rtol, const Tensor& x, Location where) {
  Shape batch;
  for (unsigned i = 0; i + 2 < x.rank(); ++i) batch.push_back(x.shape()[i]);
  if (broadcast_shapes(rtol.shape(), batch) != batch)
    throw ShapeError(
        1001,
        format_error(1001, "ShapeError", fmt::format("{}: rtol does not broadcast to the stack of matrices", function),
                     {{"x", to_string(x.dtype(), x.shape()), ""},
                      {"rtol", to_string(rtol.dtype(), rtol.shape()), "should broadcast to " + to_string(batch)}},
                     where));
  return broadcast_to(astype(rtol, real_dtype(x.dtype()), where), batch, where);
}

}  // namespace

Tensor solve(const Tensor& a, const Tensor& b, Location where) { return solve_with(Op::solve, a, b, {}, where); }

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit, Location where) {
  const std::int64_t attributes[] = {upper, unit};
  return solve_with(Op::solve_triangular, a, b, attributes, where);
}

Tensor inv(const Tensor& x, Location where) { return call(Op::inv, x, where); }
Tensor det(const Tensor& x, Location where) { return call(Op::det, x, where); }

Tensor pinv(const Tensor& x, std::optional<double> rtol, Location where) {
  require_defined("pinv", x, where);
  const Tensor a = solvable(x, where);
  Shape batch = a.shape();
  for (int i = 0; i < 2 && !batch.empty(); ++i)
    batch = Shape(std::span<const std::int64_t>(batch).first(batch.rank() - 1u));
  const Tensor operands[] = {a, full(batch, rtol.value_or(default_tolerance(a)), real_dtype(a.dtype()), where)};
  return call(Op::pinv, operands, {}, where);
}

Tensor pinv(const Tensor& x, const Tensor& rtol, Location where) {
  require_defined("pinv", x, where), require_defined("pinv", rtol, where);
  const Tensor a = solvable(x, where);
  const Tensor operands[] = {a, tolerances("pinv", rtol, a, where)};
  return call(Op::pinv, operands, {}, where);
}

LeastSquares lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond, Location where) {
  require_defined("lstsq", a, where), require_defined("lstsq", b, where);
  std::vector<Tensor> operands = solvable(a, b, where);
  const bool vector = b.rank() == 1;
  if (vector) operands[1] = expand_dims(operands[1], 1, where);
  if (a.rank() < 2 || b.rank() < 1 || operands[1].size(-2) != a.size(-2))
    throw ShapeError(
        1004,
        format_error(1004, "ShapeError", "lstsq: a [.., M, N] and b [.., M, K] do not fit",
                     {{"a", to_string(a.dtype(), a.shape()), ""}, {"b", to_string(b.dtype(), b.shape()), ""}}, where));
  const double rtol = rcond.value_or(default_tolerance(operands[0]));
  const Tensor x = matmul(pinv(operands[0], rtol, where), operands[1], where);
  const Tensor rest = subtract({matmul(operands[0], x, where), where}, operands[1]);
  const Tensor residuals = sum(squared_magnitude(rest, where), -2, false, where);
  const Tensor s = svdvals(operands[0], where);
  return {vector ? squeeze(x, -1, where) : x, vector ? squeeze(residuals, -1, where) : residuals,
          count_above(s, rtol, where), s};
}

SignedLogarithm slogdet(const Tensor& x, Location where) {
  const Tensor packed = call(Op::slogdet, x, where);
  const Tensor size = select(packed, -1, 1, where);
  return {select(packed, -1, 0, where), is_complex(size) ? real({size, where}) : size};
}

Tensor cholesky(const Tensor& x, bool upper, Location where) {
  const std::int64_t attribute = upper;
  return call(Op::cholesky, x, where, {&attribute, 1});
}

Qr qr(const Tensor& x, std::string_view mode, Location where) {
  require_defined("qr", x, where);
  if (mode != "reduced" && mode != "complete")
    throw ValueError(1393, format_error(1393, "ValueError", fmt::format("qr: there is no mode \"{}\"", mode),
                                        describe(x), where, "\"reduced\" or \"complete\""));
  const std::int64_t complete = mode == "complete" && x.rank() >= 2 && x.size(-2) > x.size(-1);
  const Tensor packed = call(Op::qr, x, where, {&complete, 1});
  const std::int64_t m = x.size(-2), n = x.size(-1);
  return {rows(packed, 0, m, where), transpose(rows(packed, m, n, where), -2, -1, where)};
}

Eigen eigh(const Tensor& x, Location where) {
  const Tensor packed = call(Op::eigh, x, where);
  return {row(packed, 0, where), rows(packed, 1, x.size(-1), where)};
}
Tensor eigvalsh(const Tensor& x, Location where) { return call(Op::eigvalsh, x, where); }

Svd svd(const Tensor& x, bool full_matrices, Location where) {
  require_defined("svd", x, where);
  const std::int64_t full = full_matrices && x.rank() >= 2 && x.size(-2) != x.size(-1);
  const Tensor packed = call(Op::svd, x, where, {&full, 1});
  const std::int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
  const Tensor u = rows(packed, 0, m, where), v = rows(packed, m + 1, n, where);
  return {slice(u, -1, 0, full != 0 ? m : k, 1, where), slice(row(packed, m, where), -1, 0, k, 1, where),
          transpose(slice(v, -1, 0, full != 0 ? n : k, 1, where), -2, -1, where)};
}
Tensor svdvals(const Tensor& x, Location where) { return call(Op::svdvals, x, where); }

Tensor matrix_rank(const Tensor& x, std::optional<double> rtol, Location where) {
  const Tensor s = svdvals(x, where);
  return count_above(s, rtol.value_or(default_tolerance(solvable(x, where))), where);
}

Tensor matrix_rank(const Tensor& x, const Tensor& rtol, Location where) {
  require_defined("matrix_rank", x, where), require_defined("matrix_rank", rtol, where);
  const Tensor s = svdvals(x, where);
  return count_above(s, expand_dims(tolerances("matrix_rank", rtol, solvable(x, where), where), -1, where), where);
}

}  // namespace fermata::linalg
