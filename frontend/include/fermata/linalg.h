// Linear algebra: fermata::linalg.
//
// Matrices are the last two axes, batch axes in front. Factorizations and solvers take f32, f64, c64 and c128 (integers
// and bool become f32; f16 and bf16 are refused, cast them first) and run through LAPACK; a build without it raises
// UnsupportedError. They have derivatives of any order, those of eigenvectors and singular vectors where the values are
// simple. A matrix that is singular, or not positive definite, is a ValueError when the value is computed, with its
// place in the batch. Sources: Python array API 2023.12, extension linalg; NumPy for what that lacks.
#pragma once

#include <optional>
#include <string_view>

#include "fermata/integer_list.h"
#include "fermata/products.h"
#include "runtime/tensor.h"

namespace fermata::linalg {

using fermata::matmul, fermata::matrix_transpose, fermata::tensordot, fermata::vecdot;

// ---- Systems of equations

/// x of a x = b.
///
/// Shapes   a [..B, N, N], b [..B, N, K] -> [..B, N, K], where batch axes broadcast; b of one axis [N] -> [..B, N].
/// Errors   ShapeError if a is not square or b does not fit; ValueError FM1390 for a singular matrix.
Tensor solve(const Tensor& a, const Tensor& b, Location where = Location::current());
/// The same for a triangular matrix, of which only that triangle is read; `unit`: the diagonal counts as ones.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper = false, bool unit = false,
                        Location where = Location::current());
/// x of x a = b: the triangular matrix stands on the right.
///
/// Shapes   a [..B, N, N], b [..B, K, N] -> [..B, K, N].
Tensor solve_triangular_right(const Tensor& a, const Tensor& b, bool upper = false, bool unit = false,
                              Location where = Location::current());
/// x of a x = b for a matrix with `lower` diagonals below the main one and `upper` above, by rows of `bands`:
/// bands[upper + i - j, j] = a[i, j]. What lies outside of the matrix is not read.
///
/// Shapes   bands [..B, lower + upper + 1, N], b [..B, N, K], or [N]. DType f32 or f64. Source SciPy, solve_banded.
/// Errors   ShapeError if they do not fit; ValueError FM1390 for a singular matrix.
Tensor solve_banded(std::int64_t lower, std::int64_t upper, const Tensor& bands, const Tensor& b,
                    Location where = Location::current());
/// x of a x = b from the factor that cholesky() gave of a: the lower one, or the upper.
Tensor cholesky_solve(const Tensor& factor, const Tensor& b, bool upper = false, Location where = Location::current());
/// Inverse. To apply it to something, solve() is faster and closer.
Tensor inv(const Tensor& x, Location where = Location::current());
/// Pseudo-inverse, [..B, M, N] -> [..B, N, M]: singular values up to rtol times the largest count as zero. By default
/// rtol is max(M, N) times the epsilon of the dtype.
Tensor pinv(const Tensor& x, std::optional<double> rtol = {}, Location where = Location::current());
/// The same with a tolerance for each matrix: rtol broadcasts to [..B].
Tensor pinv(const Tensor& x, const Tensor& rtol, Location where = Location::current());

struct LeastSquares {
  Tensor solution;         // [..B, N, K], or [..B, N]
  Tensor residuals;        // sums of squares of what is left of each column, [..B, K], or [..B]
  Tensor rank;             // i64 [..B]
  Tensor singular_values;  // of a, descending, [..B, min(M, N)]
};
/// The x that makes the norm of a x - b least, of several the shortest.
///
/// Shapes   a [..B, M, N], b [..B, M, K], or [M]. Unlike NumPy's, residuals are there whatever the rank.
LeastSquares lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {},
                   Location where = Location::current());

/// Determinants, [..B, N, N] -> [..B].
Tensor det(const Tensor& x, Location where = Location::current());
struct SignedLogarithm {
  Tensor sign;       // 0 where the matrix is singular
  Tensor logabsdet;  // then -inf
};
/// The determinant as sign * exp(logabsdet), which neither overflows nor underflows.
SignedLogarithm slogdet(const Tensor& x, Location where = Location::current());

// ---- Factors

/// The lower triangular L of x = L L^H, or the upper U of x = U^H U. One triangle of x is read: the lower, or the
/// upper.
Tensor cholesky(const Tensor& x, bool upper = false, Location where = Location::current());

struct LuFactors {
  Tensor lu;           // L below the diagonal, which is 1, and U on and above it
  Tensor permutation;  // i64 [..B, M]: row i of L U is row permutation[i] of x
};
/// x [..B, M, N] with its rows in another order as L U, by partial pivoting. A singular matrix has zeros on the
/// diagonal of U.
LuFactors lu_factor(const Tensor& x, Location where = Location::current());
struct Lu {
  Tensor p, l, u;  // [..B, M, M], [..B, M, K], [..B, K, N] with K = min(M, N)
};
/// x = p l u: a permutation, a lower triangle with ones on its diagonal, and an upper triangle.
Lu lu(const Tensor& x, Location where = Location::current());
/// x of a x = b from the factors of a square matrix; of several b of one matrix quicker than solve().
Tensor lu_solve(const LuFactors& factors, const Tensor& b, Location where = Location::current());

struct Ldl {
  Tensor l;            // unit lower triangle
  Tensor d;            // Hermitian, of numbers and blocks of two on the diagonal
  Tensor permutation;  // i64 [..B, N]: row i of l d l^H is row permutation[i] of x, and so are columns
};
/// x [..B, N, N], symmetric or Hermitian and not always definite, with rows and columns in another order as l d l^H, by
/// Bunch and Kaufman's pivoting. The lower triangle of x is read. It has no derivative.
///
/// Source   LAPACK, ?sytrf; SciPy 1.17, scipy.linalg.ldl, whose factor has its rows in the order of x.
Ldl ldl(const Tensor& x, Location where = Location::current());
/// x of a x = b from the factors of a. A singular matrix gives infinities and NaN.
Tensor ldl_solve(const Ldl& factors, const Tensor& b, Location where = Location::current());

struct Qr {
  Tensor q, r;
};
/// x = q r, with orthonormal columns of q and an upper triangle r.
///
/// Shapes   x [..B, M, N]; mode "reduced": q [M, K], r [K, N] with K = min(M, N); "complete": q [M, M], r [M, N].
/// Errors   ValueError for another mode; GradientError for the derivative of a complete q with M > N.
Qr qr(const Tensor& x, std::string_view mode = "reduced", Location where = Location::current());

struct Eigen {
  Tensor eigenvalues;   // real, ascending, [..B, N]
  Tensor eigenvectors;  // columns, [..B, N, N]
};
/// Of Hermitian (or real symmetric) matrices, of which the lower triangle is read.
Eigen eigh(const Tensor& x, Location where = Location::current());
Tensor eigvalsh(const Tensor& x, Location where = Location::current());

struct GeneralEigen {
  Tensor eigenvalues;   // complex, in no particular order, [..B, N]
  Tensor eigenvectors;  // complex columns of length 1, [..B, N, N]
};
/// Of any square matrix. Derivatives exist where the values are simple, of eigenvectors for what does not depend on
/// their phases. Source NumPy, linalg.eig.
GeneralEigen eig(const Tensor& x, Location where = Location::current());
Tensor eigvals(const Tensor& x, Location where = Location::current());

struct Svd {
  Tensor u, s, vh;
};
/// x = u diag(s) vh with s real and descending.
///
/// Shapes   x [..B, M, N] -> u [M, M], s [K], vh [N, N] with K = min(M, N), or u [M, K] and vh [K, N] unless
/// full_matrices. Errors   GradientError for the derivative of full matrices where M and N differ.
Svd svd(const Tensor& x, bool full_matrices = true, Location where = Location::current());
Tensor svdvals(const Tensor& x, Location where = Location::current());
/// How many singular values exceed rtol times the largest: i64 [..B].
Tensor matrix_rank(const Tensor& x, std::optional<double> rtol = {}, Location where = Location::current());
Tensor matrix_rank(const Tensor& x, const Tensor& rtol, Location where = Location::current());

// ---- Norms

/// (sum of |x|^ord)^(1 / ord) over axes, all of them where none are named; infinite ord: the largest or smallest
/// magnitude; 0: how many are not zero. Real.
Tensor vector_norm(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, double ord = 2,
                   Location where = Location::current());
/// Of the last two axes: "fro" (the root of the sum of squares) or "nuc" (the sum of singular values).
Tensor matrix_norm(const Tensor& x, bool keepdims = false, std::string_view ord = "fro",
                   Location where = Location::current());
/// ord 1 and -1: the largest and smallest sum of a column's magnitudes; inf and -inf: of a row's; 2 and -2: singular
/// value. The largest of none is 0; the smallest of none is a ShapeError.
Tensor matrix_norm(const Tensor& x, bool keepdims, double ord, Location where = Location::current());

// ---- Made of products, sums and views

/// x times itself n times; n = 0 gives the identity, a negative n powers of the inverse.
Tensor matrix_power(const Tensor& x, std::int64_t n, Location where = Location::current());
/// The exponential, 1 + x + x^2 / 2 + x^3 / 6 + ..., by scaling and squaring with a Pade approximant of degree 13
/// (N. J. Higham, SIAM J. Matrix Anal. Appl. 26, 2005). Inside compile(fn) and vmap, matrices whose 1-norm is above
/// 300,000 give NaN; elsewhere the norm is read, which is a sync.
Tensor expm(const Tensor& x, Location where = Location::current());
/// A view of the elements k columns right of the main diagonal: [..B, M, N] -> [..B, length].
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, Location where = Location::current());
/// The sum of a diagonal; integers add up in i64.
Tensor trace(const Tensor& x, std::int64_t offset = 0, std::optional<DType> dtype = {},
             Location where = Location::current());
/// Products of each element of one vector with each of another.
Tensor outer(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
/// Cross products of vectors of three elements along an axis; the other axes broadcast.
Tensor cross(const Tensor& lhs, const Tensor& rhs, std::int64_t axis = -1, Location where = Location::current());
/// Kronecker product: each element of lhs times rhs, as blocks.
Tensor kron(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());

}  // namespace fermata::linalg
