// The functions of fermata/linalg.h that are ops, or take the results of one apart.
#include "fermata/linalg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/linalg_operands.h"
#include "frontend/ops/op_rules.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata::linalg {
namespace {

template <Op op> Tensor call(const Tensor& x, Location where, const OpStruct<op>& attributes = {}) {
  require_defined(op, {x, where});
  const Tensor operand = solvable(x, where);
  return general_call<op>(attributes, {&operand, 1}, where);
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
template <Op op> Tensor solve_with(const OpStruct<op>& attributes, const Tensor& a, const Tensor& b, Location where) {
  require_defined(op, {a, where}), require_defined(op, {b, where});
  std::vector<Tensor> operands = solvable(a, b, where);
  const bool vector = b.rank() == 1;
  if (vector) operands[1] = expand_dims(operands[1], 1, where);
  const Tensor x = general_call<op>(attributes, operands, where);
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
        format_error(1001, "ShapeError", fmt::format("{}: rtol does not broadcast to the batch of matrices", function),
                     {{"x", to_string(x.dtype(), x.shape()), ""},
                      {"rtol", to_string(rtol.dtype(), rtol.shape()), "should broadcast to " + to_string(batch)}},
                     where));
  return broadcast_to(astype(rtol, real_dtype(x.dtype()), where), batch, where);
}

}  // namespace

Tensor solve(const Tensor& a, const Tensor& b, Location where) { return solve_with<Op::solve>({}, a, b, where); }

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool unit, Location where) {
  return solve_with<Op::solve_triangular>({.upper = {upper}, .unit = {unit}}, a, b, where);
}

Tensor inv(const Tensor& x, Location where) { return call<Op::inv>(x, where); }
Tensor det(const Tensor& x, Location where) { return call<Op::det>(x, where); }

Tensor pinv(const Tensor& x, std::optional<double> rtol, Location where) {
  require_defined("pinv", x, where);
  const Tensor a = solvable(x, where);
  Shape batch = a.shape();
  for (int i = 0; i < 2 && !batch.empty(); ++i)
    batch = Shape(std::span<const std::int64_t>(batch).first(batch.rank() - 1u));
  const Tensor operands[] = {a, full(batch, rtol.value_or(default_tolerance(a)), real_dtype(a.dtype()), where)};
  return general_call<Op::pinv>({}, operands, where);
}

Tensor pinv(const Tensor& x, const Tensor& rtol, Location where) {
  require_defined("pinv", x, where), require_defined("pinv", rtol, where);
  const Tensor a = solvable(x, where);
  const Tensor operands[] = {a, tolerances("pinv", rtol, a, where)};
  return general_call<Op::pinv>({}, operands, where);
}

LeastSquares lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond, Location where) {
  require_defined("lstsq", a, where), require_defined("lstsq", b, where);
  std::vector<Tensor> operands = solvable(a, b, where);
  const bool vector = b.rank() == 1;
  if (vector) operands[1] = expand_dims(operands[1], 1, where);
  if (a.rank() < 2 || b.rank() < 1 || operands[1].size(-2) != a.size(-2))
    throw ShapeError(
        1004,
        format_error(1004, "ShapeError", "lstsq: a [.., M, N] and b [.., M, K] do not match",
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
  const Tensor packed = call<Op::slogdet>(x, where);
  const Tensor size = select(packed, -1, 1, where);
  return {select(packed, -1, 0, where), is_complex(size) ? real({size, where}) : size};
}

Tensor cholesky(const Tensor& x, bool upper, Location where) {
  return call<Op::cholesky>(x, where, {.upper = {upper}});
}

Qr qr(const Tensor& x, std::string_view mode, Location where) {
  require_defined("qr", x, where);
  if (mode != "reduced" && mode != "complete")
    throw ValueError(1393, format_error(1393, "ValueError", fmt::format("qr: unknown mode \"{}\"", mode), describe(x),
                                        where, "\"reduced\" or \"complete\""));
  const bool complete = mode == "complete" && x.rank() >= 2 && x.size(-2) > x.size(-1);
  const Tensor packed = call<Op::qr>(x, where, {.complete = {complete}});
  const std::int64_t m = x.size(-2), n = x.size(-1);
  return {rows(packed, 0, m, where), transpose(rows(packed, m, n, where), -2, -1, where)};
}

Eigen eigh(const Tensor& x, Location where) {
  const Tensor packed = call<Op::eigh>(x, where);
  return {row(packed, 0, where), rows(packed, 1, x.size(-1), where)};
}
Tensor eigvalsh(const Tensor& x, Location where) { return call<Op::eigvalsh>(x, where); }

Svd svd(const Tensor& x, bool full_matrices, Location where) {
  require_defined("svd", x, where);
  const bool full = full_matrices && x.rank() >= 2 && x.size(-2) != x.size(-1);
  const Tensor packed = call<Op::svd>(x, where, {.full = {full}});
  const std::int64_t m = x.size(-2), n = x.size(-1), k = std::min(m, n);
  const Tensor u = rows(packed, 0, m, where), v = rows(packed, m + 1, n, where);
  return {slice(u, -1, 0, full ? m : k, 1, where), slice(row(packed, m, where), -1, 0, k, 1, where),
          transpose(slice(v, -1, 0, full ? n : k, 1, where), -2, -1, where)};
}
Tensor svdvals(const Tensor& x, Location where) { return call<Op::svdvals>(x, where); }

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

// Gradients, in tensor expressions, so that they can be differentiated again.
//
// Sources: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008;
// Seeger et al., "Auto-differentiating linear algebra", 2017 (QR, Cholesky); Townsend, "Differentiating the singular
// value decomposition", 2016; Golub and Pereyra, "The differentiation of pseudo-inverses", 1973. Rules that conjugate
// by themselves say so, the others are those of holomorphic functions. Eigenvectors and singular vectors have
// derivatives where the values are simple.
namespace fermata::vjp {
namespace {

template <Op op> VjpTensor call1(const VjpTensor& x, const OpStruct<op>& attributes = {}) {
  return call<op>(attributes, {&x.tensor(), 1});
}
VjpTensor conjugate(const VjpTensor& x) { return is_complex(x.dtype()) ? conj(x) : x; }
VjpTensor adjoint(const VjpTensor& x) { return conjugate(transpose(x)); }
VjpTensor real_part(const VjpTensor& x) { return is_complex(x.dtype()) ? real(x) : x; }

VjpTensor solve(const VjpTensor& a, const VjpTensor& b) {
  return call<Op::solve>({}, std::array{a.tensor(), b.tensor()});
}
VjpTensor solve_triangular(const VjpTensor& a, const VjpTensor& b, bool upper, bool unit = false) {
  return call<Op::solve_triangular>({.upper = {upper}, .unit = {unit}}, std::array{a.tensor(), b.tensor()});
}

std::int64_t rows_of(const VjpTensor& x) { return x.shape()[x.shape().rank() - 2u]; }
std::int64_t columns_of(const VjpTensor& x) { return x.shape().back(); }

/// Part of the rows of a matrix.
VjpTensor rows(const VjpTensor& x, std::int64_t begin, std::int64_t count) {
  Shape starts, steps, counts = x.shape();
  for (unsigned i = 0; i < counts.rank(); ++i) starts.push_back(0), steps.push_back(1);
  const unsigned axis = counts.rank() - 2u;
  starts[axis] = begin, counts[axis] = count;
  return slice(x, starts, steps, counts);
}
VjpTensor columns(const VjpTensor& x, std::int64_t begin, std::int64_t count) {
  return transpose(rows(transpose(x), begin, count));
}

/// A vector beside a matrix: its values for the rows (axis -1 is new) or the columns.
VjpTensor for_rows(const VjpTensor& v) { return expand_dims(v, static_cast<std::uint16_t>(1u << v.shape().rank())); }
VjpTensor for_columns(const VjpTensor& v) {
  return expand_dims(v, static_cast<std::uint16_t>(1u << (v.shape().rank() - 1u)));
}
/// One number beside each matrix.
VjpTensor for_matrices(const VjpTensor& v) {
  return expand_dims(v, static_cast<std::uint16_t>(3u << v.shape().rank()));
}

/// Column less row of each place in matrices like x.
VjpTensor offset_of(const VjpTensor& x) {
  const Shape matrix{rows_of(x), columns_of(x)};
  return iota(matrix, 1, x) - iota(matrix, 0, x);
}
VjpTensor on_diagonal(const VjpTensor& x) { return offset_of(x) == 0; }
VjpTensor lower(const VjpTensor& x, std::int64_t k = 0) { return where(offset_of(x) <= k, x, 0); }
VjpTensor upper(const VjpTensor& x, std::int64_t k = 0) { return where(offset_of(x) >= k, x, 0); }
/// A matrix with the vector on its diagonal.
VjpTensor diagonal_matrix(const VjpTensor& v) {
  const VjpTensor spread = for_columns(v);
  Shape sizes = v.shape();
  sizes.push_back(sizes.back());
  const VjpTensor square = broadcast_to(spread, sizes);
  return where(on_diagonal(square), square, 0);
}
VjpTensor sum_of_matrix(const VjpTensor& x) {
  return reduce(Op::sum, x, static_cast<std::uint16_t>(3u << (x.shape().rank() - 2u)), true);
}
VjpTensor halves(const VjpTensor& x) { return (x + adjoint(x)) * 0.5; }

// ---- Systems of equations

VjpTensor solve_vjp(const VjpArgs& args, unsigned operand) {
  const VjpTensor rhs = solve(transpose(args.x[0]), args.g);
  return operand == 1 ? rhs : -matmul(rhs, transpose(args.y));
}

VjpTensor solve_triangular_vjp(const VjpArgs& args, unsigned operand) {
  const auto attributes = args.attributes_of<ops::SolveTriangular>();
  const bool is_upper = attributes.upper.value, unit = attributes.unit.value;
  const VjpTensor rhs = solve_triangular(transpose(args.x[0]), args.g, !is_upper, unit);
  if (operand == 1) return rhs;
  const VjpTensor full = -matmul(rhs, transpose(args.y));
  return is_upper ? upper(full, unit ? 1 : 0) : lower(full, unit ? -1 : 0);
}

VjpTensor inv_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor inverse = transpose(args.y);
  return -matmul(matmul(inverse, args.g), inverse);
}

VjpTensor det_vjp(const VjpArgs& args, unsigned) { return for_matrices(args.g) * call1<Op::cofactor>(args.x[0]); }

/// C = det(A) B with B the transposed inverse: dC = C <B, dA> - C dA^T B.
VjpTensor cofactor_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor inverse = transpose(call1<Op::inv>(args.x[0]));
  return args.y * sum_of_matrix(args.g * inverse) - matmul(matmul(args.y, transpose(args.g)), inverse);
}

/// The logarithm of det = sign exp(size) changes by w = trace(A^-1 dA): size by its real part, sign by i sign Im w.
VjpTensor slogdet_vjp(const VjpArgs& args, unsigned) {
  const auto part = [](const VjpTensor& both, std::int64_t k) {
    Shape starts, steps, counts = both.shape();
    for (unsigned i = 0; i < counts.rank(); ++i) starts.push_back(0), steps.push_back(1);
    starts[counts.rank() - 1u] = k, counts[counts.rank() - 1u] = 1;
    return expand_dims(slice(both, starts, steps, counts), static_cast<std::uint16_t>(1u << counts.rank()));
  };
  VjpTensor scale = part(args.g, 1);
  if (is_complex(args.g.dtype())) {
    const VjpTensor turn = imag(conj(part(args.g, 0)) * part(args.y, 0));
    scale = call<Op::complex>({}, std::array{real(scale).tensor(), (-turn).tensor()});
  }
  return scale * adjoint(call1<Op::inv>(args.x[0]));
}

// ---- Factors

VjpTensor cholesky_vjp(const VjpArgs& args, unsigned) {
  const bool is_upper = args.attributes_of<ops::Cholesky>().upper.value;
  const VjpTensor l = is_upper ? adjoint(args.y) : args.y, g = is_upper ? adjoint(args.g) : args.g;
  const VjpTensor product = lower(matmul(adjoint(l), g));
  const VjpTensor p = where(on_diagonal(product), product * 0.5, product);
  const VjpTensor left = solve_triangular(adjoint(l), p, true);
  return halves(adjoint(solve_triangular(adjoint(l), adjoint(left), true)));
}

/// Of tall or square matrices: A = Q R.
VjpTensor tall_qr_vjp(const VjpTensor& q, const VjpTensor& r, const VjpTensor& gq, const VjpTensor& gr) {
  const VjpTensor s = upper(matmul(gr, adjoint(r)) - matmul(adjoint(q), gq));
  const VjpTensor both = s + adjoint(s);
  const VjpTensor inner = gq + matmul(q, where(on_diagonal(both), both * 0.5, both));
  return adjoint(solve_triangular(r, adjoint(inner), true));
}

[[noreturn]] void refuse_complement(const VjpArgs& args, std::string_view what) {
  throw GradientError(
      1771, format_error(1771, "GradientError", fmt::format("{}: the complete form is not differentiable", what),
                         {{"x", to_string(args.g.dtype(), args.shape(0)), ""}}, current_line, "use the reduced form"));
}

VjpTensor qr_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t m = args.shape(0)[args.shape(0).rank() - 2u], n = args.shape(0).back(), k = columns_of(args.y);
  if (k > n) refuse_complement(args, "qr");
  const VjpTensor q = rows(args.y, 0, m), r = transpose(rows(args.y, m, n));
  const VjpTensor gq = rows(args.g, 0, m), gr = transpose(rows(args.g, m, n));
  if (m >= n) return tall_qr_vjp(q, r, gq, gr);
  // A = [X, Y] with X = Q U and Y = Q V.
  const VjpTensor u = columns(r, 0, m), v = columns(r, m, n - m), gu = columns(gr, 0, m), gv = columns(gr, m, n - m);
  const VjpTensor y = matmul(q, v);
  const VjpTensor gx = tall_qr_vjp(q, u, gq + matmul(y, adjoint(gv)), gu);
  return concat(std::array{gx, matmul(q, gv)}, static_cast<std::int64_t>(args.shape(0).rank()) - 1);
}

/// 1 / (w_j - w_i), 0 on the diagonal.
VjpTensor inverse_gaps(const VjpTensor& w) {
  const VjpTensor gap = for_columns(w) - for_rows(w);
  const VjpTensor same = on_diagonal(gap);
  return where(same, 0, reciprocal(where(same, 1, gap)));
}

VjpTensor eigh_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t n = columns_of(args.y);
  const auto values = [](const VjpTensor& x) {
    return squeeze(rows(x, 0, 1), static_cast<std::uint16_t>(1u << (x.shape().rank() - 2u)));
  };
  const VjpTensor w = real_part(values(args.y)), v = rows(args.y, 1, n);
  const VjpTensor gw = real_part(values(args.g)), gv = rows(args.g, 1, n);
  const VjpTensor inner = diagonal_matrix(gw) + inverse_gaps(w) * matmul(adjoint(v), gv);
  return halves(matmul(matmul(v, inner), adjoint(v)));
}

VjpTensor eigvalsh_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor v = rows(call1<Op::eigh>(args.x[0]), 1, args.shape(0).back());
  return matmul(v * cast(for_columns(args.g), v.dtype()), adjoint(v));
}

struct SingularParts {
  SingularParts(const VjpTensor& packed, const Shape& matrix) {
    const std::int64_t m = matrix[matrix.rank() - 2u], n = matrix.back();
    u = rows(packed, 0, m);
    s = real_part(squeeze(rows(packed, m, 1), static_cast<std::uint16_t>(1u << (matrix.rank() - 2u))));
    vh = transpose(rows(packed, m + 1, n));
  }
  VjpTensor u, s, vh;
};

VjpTensor svd_vjp(const VjpArgs& args, unsigned) {
  const Shape& matrix = args.shape(0);
  const std::int64_t m = matrix[matrix.rank() - 2u], n = matrix.back(), k = std::min(m, n);
  if (columns_of(args.y) > k) refuse_complement(args, "svd");
  const SingularParts y(args.y, matrix), g(args.g, matrix);
  const auto skew = [](const VjpTensor& x) { return x - adjoint(x); };
  const VjpTensor in_u = skew(matmul(adjoint(y.u), g.u)), in_v = skew(matmul(y.vh, adjoint(g.vh)));
  const VjpTensor along_columns = for_columns(y.s), along_rows = for_rows(y.s);
  VjpTensor inner = (in_u * along_columns + along_rows * in_v) * inverse_gaps(y.s * y.s) + diagonal_matrix(g.s);
  if (is_complex(args.y.dtype()))  // the phases of a pair of vectors turn together: U takes the whole turn
    inner = inner + where(on_diagonal(in_u), in_u, 0) / (along_rows * 2);
  if (m > k) {
    const VjpTensor outside = g.u / along_columns;
    return matmul(matmul(y.u, inner) + outside - matmul(y.u, matmul(adjoint(y.u), outside)), y.vh);
  }
  inner = matmul(inner, y.vh);
  if (n > k) {
    const VjpTensor outside = g.vh / along_rows;
    inner = inner + outside - matmul(matmul(outside, adjoint(y.vh)), y.vh);
  }
  return matmul(y.u, inner);
}

VjpTensor svdvals_vjp(const VjpArgs& args, unsigned) {
  const SingularParts parts(call1<Op::svd>(args.x[0], {.full = {false}}), args.shape(0));
  return matmul(parts.u * cast(for_columns(args.g), parts.u.dtype()), parts.vh);
}

VjpTensor pinv_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor &a = args.x[0], &p = args.y;
  const VjpTensor ph = adjoint(p), gh = adjoint(args.g), left = matmul(gh, matmul(p, ph)),
                  right = matmul(matmul(ph, p), gh);
  return left - matmul(a, matmul(p, left)) + right - matmul(matmul(right, p), a) - matmul(matmul(ph, args.g), ph);
}

// ---- Batching rules

/// The batch comes before the batch axes of either operand, of which one may have fewer.
Tensor batched_systems(const BatchedCall& call) {
  const unsigned rank = std::max(call.shape(0).rank(), call.shape(1).rank());
  std::array<Tensor, 2> operands;
  for (std::size_t k = 0; k < 2; ++k) {
    const unsigned missing = call.operands[k].batched ? rank - call.shape(k).rank() : 0;
    operands[k] =
        vjp::expand_dims(call.operands[k].value, static_cast<std::uint16_t>(((1u << missing) - 1u) << 1)).tensor();
  }
  return vjp::call(call.op, operands, call.attributes.integers).tensor();
}

}  // namespace

FERMATA_OP_RULES(solve, batched_systems, gradient(solve_vjp, kFirst | kResult), gradient(solve_vjp, kFirst | kResult));
FERMATA_OP_RULES(solve_triangular, batched_systems, gradient(solve_triangular_vjp, kFirst | kResult),
                 gradient(solve_triangular_vjp, kFirst | kResult));
FERMATA_OP_RULES(inv, batched_in_front, gradient(inv_vjp, kResult));
FERMATA_OP_RULES(det, batched_in_front, gradient(det_vjp, kFirst));
FERMATA_OP_RULES(cofactor, batched_in_front, gradient(cofactor_vjp, kFirst | kResult));
FERMATA_OP_RULES(slogdet, batched_in_front, conjugate_gradient(slogdet_vjp, kFirst | kResult));
FERMATA_OP_RULES(cholesky, batched_in_front, conjugate_gradient(cholesky_vjp, kResult));
FERMATA_OP_RULES(qr, batched_in_front, conjugate_gradient(qr_vjp, kResult));
FERMATA_OP_RULES(eigh, batched_in_front, conjugate_gradient(eigh_vjp, kResult));
FERMATA_OP_RULES(eigvalsh, batched_in_front, conjugate_gradient(eigvalsh_vjp, kFirst));
FERMATA_OP_RULES(svd, batched_in_front, conjugate_gradient(svd_vjp, kResult));
FERMATA_OP_RULES(svdvals, batched_in_front, conjugate_gradient(svdvals_vjp, kFirst));
FERMATA_OP_RULES(pinv, batched_in_front, conjugate_gradient(pinv_vjp, kFirst | kResult), kZeroGradient);

}  // namespace fermata::vjp
