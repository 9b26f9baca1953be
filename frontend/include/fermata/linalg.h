// Linear algebra: fermata::linalg.
//
// Matrices are the last two axes; leading axes are batch axes. Factorizations and solvers take f32, f64, c64 and c128
// (integers and bool become f32; f16 and bf16 are DTypeErrors, cast them first). They use LAPACK; a build without it
// throws UnsupportedError. They are differentiable to any order; eigenvectors and singular vectors only where the
// values are simple. A singular or not positive definite matrix is a ValueError when the value is computed, which names
// its position in the batch. Sources: Python array API 2023.12, extension linalg; NumPy for what that lacks.
#pragma once

#include <optional>
#include <string_view>

#include "fermata/integer_list.h"
#include "fermata/products.h"
#include "runtime/tensor.h"

namespace fermata::linalg {

using fermata::matmul, fermata::matrix_transpose, fermata::tensordot, fermata::vecdot;

// ---- Systems of equations

/// Solves a x = b for x.
///
/// Shapes   a [..B, N, N], b [..B, N, K] -> [..B, N, K], batch axes broadcast; a vector b [N] gives [..B, N].
/// Errors   ShapeError if a is not square or b does not match; ValueError FM1390 for a singular matrix.
Tensor solve(const Tensor& a, const Tensor& b, Location where = Location::current());
/// Solves a x = b for a triangular a; only that triangle is read. `unit`: the diagonal is taken as ones.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper = false, bool unit = false,
                        Location where = Location::current());
/// Solves x a = b for x, with a triangular a.
///
/// Shapes   a [..B, N, N], b [..B, K, N] -> [..B, K, N].
Tensor solve_triangular_right(const Tensor& a, const Tensor& b, bool upper = false, bool unit = false,
                              Location where = Location::current());
/// Solves a x = b for a banded a with `lower` diagonals below the main one and `upper` above: bands[upper + i - j, j] =
/// a[i, j]. Elements of `bands` outside the matrix are not read.
///
/// Shapes   bands [..B, lower + upper + 1, N], b [..B, N, K], or [N]. DType f32 or f64. Source SciPy, solve_banded.
/// Errors   ShapeError if shapes do not match; ValueError FM1390 for a singular matrix.
Tensor solve_banded(std::int64_t lower, std::int64_t upper, const Tensor& bands, const Tensor& b,
                    Location where = Location::current());
/// Solves a x = b given the lower or upper factor of a from cholesky().
Tensor cholesky_solve(const Tensor& factor, const Tensor& b, bool upper = false, Location where = Location::current());
/// Inverse. Prefer solve() for applying it: faster and more accurate.
Tensor inv(const Tensor& x, Location where = Location::current());
/// Pseudo-inverse, [..B, M, N] -> [..B, N, M]: singular values up to rtol times the largest count as zero. By default
/// rtol is max(M, N) times the epsilon of the dtype.
Tensor pinv(const Tensor& x, std::optional<double> rtol = {}, Location where = Location::current());
/// pinv() with a tolerance per matrix: rtol broadcasts to [..B].
Tensor pinv(const Tensor& x, const Tensor& rtol, Location where = Location::current());

struct LeastSquares {
  Tensor solution;         // [..B, N, K], or [..B, N]
  Tensor residuals;        // squared residual norm of each column, [..B, K], or [..B]
  Tensor rank;             // i64 [..B]
  Tensor singular_values;  // of a, descending, [..B, min(M, N)]
};
/// The x that minimizes the norm of a x - b; if there are several, the one of least norm.
///
/// Shapes   a [..B, M, N], b [..B, M, K], or [M]. Unlike NumPy's, residuals are returned for any rank.
LeastSquares lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {},
                   Location where = Location::current());

/// Determinants, [..B, N, N] -> [..B].
Tensor det(const Tensor& x, Location where = Location::current());
struct SignedLogarithm {
  Tensor sign;       // 0 where the matrix is singular
  Tensor logabsdet;  // -inf for a singular matrix
};
/// The determinant as sign * exp(logabsdet), which neither overflows nor underflows.
SignedLogarithm slogdet(const Tensor& x, Location where = Location::current());

// ---- Factors

/// The lower triangular L of x = L L^H, or the upper U of x = U^H U. Only the lower (or upper) triangle of x is read.
Tensor cholesky(const Tensor& x, bool upper = false, Location where = Location::current());

struct LuFactors {
  Tensor lu;           // L below the diagonal (its own diagonal is 1), U on and above it
  Tensor permutation;  // i64 [..B, M]: row i of L U is row permutation[i] of x
};
/// LU factorization of x [..B, M, N] with partial pivoting. A singular matrix has zeros on the diagonal of U.
LuFactors lu_factor(const Tensor& x, Location where = Location::current());
struct Lu {
  Tensor p, l, u;  // [..B, M, M], [..B, M, K], [..B, K, N] with K = min(M, N)
};
/// x = p l u: a permutation matrix, a unit lower triangular and an upper triangular matrix.
Lu lu(const Tensor& x, Location where = Location::current());
/// Solves a x = b given the factors of a square a; faster than repeated solve() for one matrix.
Tensor lu_solve(const LuFactors& factors, const Tensor& b, Location where = Location::current());

struct Ldl {
  Tensor l;            // unit lower triangular
  Tensor d;            // Hermitian block diagonal, with blocks of one and two rows
  Tensor permutation;  // i64 [..B, N]: row i of l d l^H is row permutation[i] of x; the same for columns
};
/// LDL^H factorization with Bunch-Kaufman pivoting of x [..B, N, N], symmetric or Hermitian and possibly indefinite.
/// Only the lower triangle of x is read. Not differentiable.
///
/// Source   LAPACK, ?sytrf; SciPy 1.17, scipy.linalg.ldl (whose factor has the row order of x).
Ldl ldl(const Tensor& x, Location where = Location::current());
/// Solves a x = b given the factors of a. A singular matrix gives infinities and NaN.
Tensor ldl_solve(const Ldl& factors, const Tensor& b, Location where = Location::current());

struct Qr {
  Tensor q, r;
};
/// x = q r, with orthonormal columns of q and an upper triangular r.
///
/// Shapes   x [..B, M, N]; mode "reduced": q [M, K], r [K, N] with K = min(M, N); "complete": q [M, M], r [M, N].
/// Errors   ValueError for any other mode; GradientError for the derivative of a complete q with M > N.
Qr qr(const Tensor& x, std::string_view mode = "reduced", Location where = Location::current());

struct Eigen {
  Tensor eigenvalues;   // real, ascending, [..B, N]
  Tensor eigenvectors;  // columns, [..B, N, N]
};
/// Eigendecomposition of Hermitian (or real symmetric) matrices; only the lower triangle is read.
Eigen eigh(const Tensor& x, Location where = Location::current());
Tensor eigvalsh(const Tensor& x, Location where = Location::current());

struct GeneralEigen {
  Tensor eigenvalues;   // complex, in no particular order, [..B, N]
  Tensor eigenvectors;  // complex columns of length 1, [..B, N, N]
};
/// Eigendecomposition of any square matrix. Differentiable where eigenvalues are simple; for eigenvectors, only through
/// functions that do not depend on their phases. Source NumPy, linalg.eig.
GeneralEigen eig(const Tensor& x, Location where = Location::current());
Tensor eigvals(const Tensor& x, Location where = Location::current());

struct Svd {
  Tensor u, s, vh;
};
/// x = u diag(s) vh with s real and descending.
///
/// Shapes   x [..B, M, N] -> u [M, M], s [K], vh [N, N] with K = min(M, N), or u [M, K] and vh [K, N] unless
///          full_matrices.
/// Errors   GradientError for the derivative of full matrices if M and N differ.
Svd svd(const Tensor& x, bool full_matrices = true, Location where = Location::current());
Tensor svdvals(const Tensor& x, Location where = Location::current());
/// The number of singular values above rtol times the largest: i64 [..B].
Tensor matrix_rank(const Tensor& x, std::optional<double> rtol = {}, Location where = Location::current());
Tensor matrix_rank(const Tensor& x, const Tensor& rtol, Location where = Location::current());

// ---- Norms

/// (sum of |x|^ord)^(1 / ord) over `axes`, by default all. ord = inf or -inf: the largest or smallest magnitude; 0: the
/// number of non-zero elements. The result is real.
Tensor vector_norm(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, double ord = 2,
                   Location where = Location::current());
inline Tensor vector_norm(Tensor&& x, const IntegerList& axes = {}, bool keepdims = false, double ord = 2,
                          Location where = Location::current()) {
  return fermata::detail::consumed(x, vector_norm(std::as_const(x), axes, keepdims, ord, where));
}
/// Norm over the last two axes: "fro" (the root of the sum of squares) or "nuc" (the sum of singular values).
Tensor matrix_norm(const Tensor& x, bool keepdims = false, std::string_view ord = "fro",
                   Location where = Location::current());
/// ord 1 and -1: the largest and smallest column sum of magnitudes; inf and -inf: the row sums; 2 and -2: the singular
/// values. The largest of an empty set is 0; the smallest is a ShapeError.
Tensor matrix_norm(const Tensor& x, bool keepdims, double ord, Location where = Location::current());

// ---- Composed of products, sums and views

/// x to the power n; n = 0 gives the identity, negative n powers of the inverse.
Tensor matrix_power(const Tensor& x, std::int64_t n, Location where = Location::current());
/// The exponential, 1 + x + x^2 / 2 + x^3 / 6 + ..., by scaling and squaring with a Pade approximant of degree 13 (N.
/// J. Higham, SIAM J. Matrix Anal. Appl. 26, 2005). Inside compile(fn) and vmap, matrices with a 1-norm above 300,000
/// give NaN; elsewhere the norm is read, which syncs.
Tensor expm(const Tensor& x, Location where = Location::current());
/// A view of the diagonal `offset` columns right of the main one: [..B, M, N] -> [..B, length].
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, Location where = Location::current());
/// The sum of a diagonal; integers accumulate in i64.
Tensor trace(const Tensor& x, std::int64_t offset = 0, std::optional<DType> dtype = {},
             Location where = Location::current());
/// Outer product of two vectors.
Tensor outer(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
/// Cross products of vectors of three elements along an axis; the other axes broadcast.
Tensor cross(const Tensor& lhs, const Tensor& rhs, std::int64_t axis = -1, Location where = Location::current());
/// Kronecker product: each element of lhs times rhs, as blocks.
Tensor kron(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());

}  // namespace fermata::linalg
