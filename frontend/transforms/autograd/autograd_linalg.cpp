// The rules of ir/ops/linalg.def and fft.def, in tensor expressions, so that they can be differentiated again.
//
// Sources: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008;
// Seeger et al., "Auto-differentiating linear algebra", 2017 (QR, Cholesky); Townsend, "Differentiating the singular
// value decomposition", 2016; Golub and Pereyra, "The differentiation of pseudo-inverses", 1973. Rules that conjugate
// by themselves say so, the others are those of holomorphic functions. Eigenvectors and singular vectors have
// derivatives where the values are simple.
#include <algorithm>

#include <fmt/format.h>

#include "frontend/transforms/autograd/autograd_rules.h"
#include "ir/error.h"

namespace fermata {
namespace vjp {
namespace {

Located call1(Op op, const Located& x, std::span<const std::int64_t> attributes = {}) {
  return call(op, {&x.tensor(), 1}, attributes);
}
Located conjugate(const Located& x) { return is_complex(x.dtype()) ? conj(x) : x; }
Located adjoint(const Located& x) { return conjugate(transpose(x)); }
Located real_part(const Located& x) { return is_complex(x.dtype()) ? real(x) : x; }

Located solve(const Located& a, const Located& b) { return call(Op::solve, std::array{a.tensor(), b.tensor()}, {}); }
Located solve_triangular(const Located& a, const Located& b, bool upper, bool unit = false) {
  return call(Op::solve_triangular, std::array{a.tensor(), b.tensor()}, std::array<std::int64_t, 2>{upper, unit});
}

std::int64_t rows_of(const Located& x) { return x.shape()[x.shape().rank() - 2u]; }
std::int64_t columns_of(const Located& x) { return x.shape().back(); }

/// Part of the rows of a matrix.
Located rows(const Located& x, std::int64_t begin, std::int64_t count) {
  Shape starts, steps, counts = x.shape();
  for (unsigned i = 0; i < counts.rank(); ++i) starts.push_back(0), steps.push_back(1);
  const unsigned axis = counts.rank() - 2u;
  starts[axis] = begin, counts[axis] = count;
  return slice(x, starts, steps, counts);
}
Located columns(const Located& x, std::int64_t begin, std::int64_t count) {
  return transpose(rows(transpose(x), begin, count));
}

/// A vector beside a matrix: its values for the rows (axis -1 is new) or the columns.
Located for_rows(const Located& v) { return expand_dims(v, static_cast<std::uint16_t>(1u << v.shape().rank())); }
Located for_columns(const Located& v) {
  return expand_dims(v, static_cast<std::uint16_t>(1u << (v.shape().rank() - 1u)));
}
/// One number beside each matrix.
Located for_matrices(const Located& v) { return expand_dims(v, static_cast<std::uint16_t>(3u << v.shape().rank())); }

/// Column less row of each place in matrices like x.
Located offset_of(const Located& x) {
  const Shape matrix{rows_of(x), columns_of(x)};
  return iota(matrix, 1, x) - iota(matrix, 0, x);
}
Located on_diagonal(const Located& x) { return offset_of(x) == 0; }
Located lower(const Located& x, std::int64_t k = 0) { return where(offset_of(x) <= k, x, 0); }
Located upper(const Located& x, std::int64_t k = 0) { return where(offset_of(x) >= k, x, 0); }
/// A matrix with the vector on its diagonal.
Located diagonal_matrix(const Located& v) {
  const Located spread = for_columns(v);
  Shape sizes = v.shape();
  sizes.push_back(sizes.back());
  const Located square = broadcast_to(spread, sizes);
  return where(on_diagonal(square), square, 0);
}
Located sum_of_matrix(const Located& x) {
  return reduce(Op::sum, x, static_cast<std::uint16_t>(3u << (x.shape().rank() - 2u)), true);
}
Located halves(const Located& x) { return (x + adjoint(x)) * 0.5; }

// ---- Systems of equations

Located solve_vjp(const VjpArgs& args, unsigned operand) {
  const Located rhs = solve(transpose(args.x[0]), args.g);
  return operand == 1 ? rhs : -matmul(rhs, transpose(args.y));
}

Located solve_triangular_vjp(const VjpArgs& args, unsigned operand) {
  const bool is_upper = args.attributes()[0] != 0, unit = args.attributes()[1] != 0;
  const Located rhs = solve_triangular(transpose(args.x[0]), args.g, !is_upper, unit);
  if (operand == 1) return rhs;
  const Located full = -matmul(rhs, transpose(args.y));
  return is_upper ? upper(full, unit ? 1 : 0) : lower(full, unit ? -1 : 0);
}

Located inv_vjp(const VjpArgs& args, unsigned) {
  const Located inverse = transpose(args.y);
  return -matmul(matmul(inverse, args.g), inverse);
}

Located det_vjp(const VjpArgs& args, unsigned) { return for_matrices(args.g) * call1(Op::cofactor, args.x[0]); }

/// C = det(A) B with B the transposed inverse: dC = C <B, dA> - C dA^T B.
Located cofactor_vjp(const VjpArgs& args, unsigned) {
  const Located inverse = transpose(call1(Op::inv, args.x[0]));
  return args.y * sum_of_matrix(args.g * inverse) - matmul(matmul(args.y, transpose(args.g)), inverse);
}

/// The logarithm of det = sign exp(size) changes by w = trace(A^-1 dA): size by its real part, sign by i sign Im w.
Located slogdet_vjp(const VjpArgs& args, unsigned) {
  const auto part = [](const Located& both, std::int64_t k) {
    Shape starts, steps, counts = both.shape();
    for (unsigned i = 0; i < counts.rank(); ++i) starts.push_back(0), steps.push_back(1);
    starts[counts.rank() - 1u] = k, counts[counts.rank() - 1u] = 1;
    return expand_dims(slice(both, starts, steps, counts), static_cast<std::uint16_t>(1u << counts.rank()));
  };
  Located scale = part(args.g, 1);
  if (is_complex(args.g.dtype())) {
    const Located turn = imag(conj(part(args.g, 0)) * part(args.y, 0));
    scale = call(Op::complex, std::array{real(scale).tensor(), (-turn).tensor()}, {});
  }
  return scale * adjoint(call1(Op::inv, args.x[0]));
}

// ---- Factors

Located cholesky_vjp(const VjpArgs& args, unsigned) {
  const bool is_upper = args.attributes()[0] != 0;
  const Located l = is_upper ? adjoint(args.y) : args.y, g = is_upper ? adjoint(args.g) : args.g;
  const Located product = lower(matmul(adjoint(l), g));
  const Located p = where(on_diagonal(product), product * 0.5, product);
  const Located left = solve_triangular(adjoint(l), p, true);
  return halves(adjoint(solve_triangular(adjoint(l), adjoint(left), true)));
}

/// Of tall or square matrices: A = Q R.
Located tall_qr_vjp(const Located& q, const Located& r, const Located& gq, const Located& gr) {
  const Located s = upper(matmul(gr, adjoint(r)) - matmul(adjoint(q), gq));
  const Located both = s + adjoint(s);
  const Located inner = gq + matmul(q, where(on_diagonal(both), both * 0.5, both));
  return adjoint(solve_triangular(r, adjoint(inner), true));
}

[[noreturn]] void refuse_complement(const VjpArgs& args, std::string_view what) {
  throw GradientError(
      1771,
      format_error(1771, "GradientError", fmt::format("{}: the vectors that complete a basis have no derivative", what),
                   {{"x", to_string(args.g.dtype(), args.shape(0)), ""}}, current_line, "ask for the reduced form"));
}

Located qr_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t m = args.shape(0)[args.shape(0).rank() - 2u], n = args.shape(0).back(), k = columns_of(args.y);
  if (k > n) refuse_complement(args, "qr");
  const Located q = rows(args.y, 0, m), r = transpose(rows(args.y, m, n));
  const Located gq = rows(args.g, 0, m), gr = transpose(rows(args.g, m, n));
  if (m >= n) return tall_qr_vjp(q, r, gq, gr);
  // A = [X, Y] with X = Q U and Y = Q V.
  const Located u = columns(r, 0, m), v = columns(r, m, n - m), gu = columns(gr, 0, m), gv = columns(gr, m, n - m);
  const Located y = matmul(q, v);
  const Located gx = tall_qr_vjp(q, u, gq + matmul(y, adjoint(gv)), gu);
  return concat(std::array{gx, matmul(q, gv)}, static_cast<std::int64_t>(args.shape(0).rank()) - 1);
}

/// 1 / (w_j - w_i), 0 on the diagonal.
Located inverse_gaps(const Located& w) {
  const Located gap = for_columns(w) - for_rows(w);
  const Located same = on_diagonal(gap);
  return where(same, 0, reciprocal(where(same, 1, gap)));
}

Located eigh_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t n = columns_of(args.y);
  const auto values = [](const Located& x) {
    return squeeze(rows(x, 0, 1), static_cast<std::uint16_t>(1u << (x.shape().rank() - 2u)));
  };
  const Located w = real_part(values(args.y)), v = rows(args.y, 1, n);
  const Located gw = real_part(values(args.g)), gv = rows(args.g, 1, n);
  const Located inner = diagonal_matrix(gw) + inverse_gaps(w) * matmul(adjoint(v), gv);
  return halves(matmul(matmul(v, inner), adjoint(v)));
}

Located eigvalsh_vjp(const VjpArgs& args, unsigned) {
  const Located v = rows(call1(Op::eigh, args.x[0]), 1, args.shape(0).back());
  return matmul(v * cast(for_columns(args.g), v.dtype()), adjoint(v));
}

struct SingularParts {
  SingularParts(const Located& packed, const Shape& matrix) {
    const std::int64_t m = matrix[matrix.rank() - 2u], n = matrix.back();
    u = rows(packed, 0, m);
    s = real_part(squeeze(rows(packed, m, 1), static_cast<std::uint16_t>(1u << (matrix.rank() - 2u))));
    vh = transpose(rows(packed, m + 1, n));
  }
  Located u, s, vh;
};

Located svd_vjp(const VjpArgs& args, unsigned) {
  const Shape& matrix = args.shape(0);
  const std::int64_t m = matrix[matrix.rank() - 2u], n = matrix.back(), k = std::min(m, n);
  if (columns_of(args.y) > k) refuse_complement(args, "svd");
  const SingularParts y(args.y, matrix), g(args.g, matrix);
  const auto skew = [](const Located& x) { return x - adjoint(x); };
  const Located in_u = skew(matmul(adjoint(y.u), g.u)), in_v = skew(matmul(y.vh, adjoint(g.vh)));
  const Located along_columns = for_columns(y.s), along_rows = for_rows(y.s);
  Located inner = (in_u * along_columns + along_rows * in_v) * inverse_gaps(y.s * y.s) + diagonal_matrix(g.s);
  if (is_complex(args.y.dtype()))  // the phases of a pair of vectors turn together: U takes the whole turn
    inner = inner + where(on_diagonal(in_u), in_u, 0) / (along_rows * 2);
  if (m > k) {
    const Located outside = g.u / along_columns;
    return matmul(matmul(y.u, inner) + outside - matmul(y.u, matmul(adjoint(y.u), outside)), y.vh);
  }
  inner = matmul(inner, y.vh);
  if (n > k) {
    const Located outside = g.vh / along_rows;
    inner = inner + outside - matmul(matmul(outside, adjoint(y.vh)), y.vh);
  }
  return matmul(y.u, inner);
}

Located svdvals_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t reduced = 0;
  const SingularParts parts(call1(Op::svd, args.x[0], {&reduced, 1}), args.shape(0));
  return matmul(parts.u * cast(for_columns(args.g), parts.u.dtype()), parts.vh);
}

Located pinv_vjp(const VjpArgs& args, unsigned) {
  const Located &a = args.x[0], &p = args.y;
  const Located ph = adjoint(p), gh = adjoint(args.g), left = matmul(gh, matmul(p, ph)),
                right = matmul(matmul(ph, p), gh);
  return left - matmul(a, matmul(p, left)) + right - matmul(matmul(right, p), a) - matmul(matmul(ph, args.g), ph);
}

// ---- Fourier transforms: their matrices are symmetric, so the conjugate transpose is the transform the other way.

Located fft_vjp(const VjpArgs& args, unsigned) {
  return call1(Op::fft, args.g, std::array<std::int64_t, 2>{args.attributes()[0], args.attributes()[1] == 0});
}

/// `inside` for numbers that stand for themselves and their conjugate among the n of a real transform, 1 for the
/// others.
Located fold_weights(const Located& half, std::size_t axis, std::int64_t n, double inside) {
  Shape sizes;
  for (unsigned i = 0; i < half.shape().rank(); ++i) sizes.push_back(i == axis ? half.shape()[i] : 1);
  const Located at = iota(sizes, static_cast<std::int64_t>(axis), half);
  const Located ends = n % 2 == 0 ? logical_or(at == 0, at == n / 2) : at == 0;
  const DType part = real_dtype(half.dtype());
  return where(ends, full(1, {part, {}}, half), full(inside, {part, {}}, half));
}

Located rfft_vjp(const VjpArgs& args, unsigned) {
  const auto axis = static_cast<std::size_t>(args.attributes()[0]);
  const std::int64_t n = args.shape(0)[axis];
  return call1(Op::irfft, args.g * fold_weights(args.g, axis, n, 0.5), std::array{args.attributes()[0], n});
}

Located irfft_vjp(const VjpArgs& args, unsigned) {
  const Located half = call1(Op::rfft, args.g, args.attributes().first(1));
  return half * fold_weights(half, static_cast<std::size_t>(args.attributes()[0]), args.attributes()[1], 2);
}

}  // namespace
}  // namespace vjp

VjpRule linalg_vjp_rule(Op op) {
  using namespace vjp;
  constexpr std::uint8_t kX = 1, kY = VjpRule::kResult;
  const auto holomorphic = [](Vjp vjp, std::uint8_t reads) {
    const VjpRule::Entry entry{Derivative::formula, vjp, reads};
    return VjpRule{{entry, entry}};
  };
  const auto conjugate = [](Vjp vjp, std::uint8_t reads = 0) {
    return VjpRule{{VjpRule::Entry{Derivative::formula, vjp, reads, true}, VjpRule::Entry{Derivative::zero}}};
  };
  switch (op) {
    case Op::solve: return holomorphic(solve_vjp, kX | kY);
    case Op::solve_triangular: return holomorphic(solve_triangular_vjp, kX | kY);
    case Op::inv: return holomorphic(inv_vjp, kY);
    case Op::det: return holomorphic(det_vjp, kX);
    case Op::cofactor: return holomorphic(cofactor_vjp, kX | kY);
    case Op::slogdet: return conjugate(slogdet_vjp, kX | kY);
    case Op::cholesky: return conjugate(cholesky_vjp, kY);
    case Op::qr: return conjugate(qr_vjp, kY);
    case Op::eigh: return conjugate(eigh_vjp, kY);
    case Op::eigvalsh: return conjugate(eigvalsh_vjp, kX);
    case Op::svd: return conjugate(svd_vjp, kY);
    case Op::svdvals: return conjugate(svdvals_vjp, kX);
    case Op::pinv: return conjugate(pinv_vjp, kX | kY);
    case Op::fft: return conjugate(fft_vjp);
    case Op::rfft: return conjugate(rfft_vjp);
    case Op::irfft: return conjugate(irfft_vjp);
    default: return {};  // no operands, or not differentiable
  }
}

}  // namespace fermata
