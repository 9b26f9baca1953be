// Reference evaluation of linear algebra in long double, by the shortest methods that are right: elimination,
// reflections and Jacobi rotations (Golub and Van Loan, Matrix Computations, chapters 3, 5 and 8). A singular matrix
// gives infinities.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/error.h"
#include "ir/ops/linalg.h"
#include "ir/reference_element.h"

namespace fermata::ops {
namespace {

using Real = long double;
using Number = std::complex<Real>;

struct Matrix {
  Matrix(std::int64_t m, std::int64_t n) : rows(m), columns(n), at(static_cast<std::size_t>(m * n)) {}
  Number& operator()(std::int64_t i, std::int64_t j) { return at[static_cast<std::size_t>(i * columns + j)]; }
  Number operator()(std::int64_t i, std::int64_t j) const { return at[static_cast<std::size_t>(i * columns + j)]; }
  std::int64_t rows, columns;
  std::vector<Number> at;
};

Matrix identity(std::int64_t n) {
  Matrix m(n, n);
  for (std::int64_t i = 0; i < n; ++i) m(i, i) = 1;
  return m;
}
Matrix adjoint(const Matrix& a) {
  Matrix m(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) m(j, i) = std::conj(a(i, j));
  return m;
}

/// Elimination with pivots: a becomes an upper triangle, b the right-hand sides that go with it. Gives the sign of the
/// permutation.
Real eliminate(Matrix& a, Matrix& b) {
  Real sign = 1;
  for (std::int64_t k = 0; k < a.rows; ++k) {
    std::int64_t best = k;
    for (std::int64_t i = k + 1; i < a.rows; ++i)
      if (std::abs(a(i, k)) > std::abs(a(best, k))) best = i;
    if (best != k) sign = -sign;
    for (std::int64_t j = 0; j < a.columns; ++j) std::swap(a(k, j), a(best, j));
    for (std::int64_t j = 0; j < b.columns; ++j) std::swap(b(k, j), b(best, j));
    if (a(k, k) == Number(0)) continue;
    for (std::int64_t i = k + 1; i < a.rows; ++i) {
      const Number factor = a(i, k) / a(k, k);
      for (std::int64_t j = k; j < a.columns; ++j) a(i, j) -= factor * a(k, j);
      for (std::int64_t j = 0; j < b.columns; ++j) b(i, j) -= factor * b(k, j);
    }
  }
  return sign;
}

Matrix substitute(const Matrix& a, Matrix b, bool upper, bool unit) {
  for (std::int64_t step = 0; step < a.rows; ++step) {
    const std::int64_t i = upper ? a.rows - 1 - step : step;
    for (std::int64_t j = 0; j < b.columns; ++j) {
      for (std::int64_t k = upper ? i + 1 : 0; k < (upper ? a.rows : i); ++k) b(i, j) -= a(i, k) * b(k, j);
      if (!unit) b(i, j) /= a(i, i);
    }
  }
  return b;
}

Matrix solve(Matrix a, Matrix b) {
  eliminate(a, b);
  return substitute(a, std::move(b), true, false);
}

/// The determinant as a sign and the logarithm of its magnitude.
std::pair<Number, Real> signed_log(Matrix a) {
  Matrix none(a.rows, 0);
  std::pair<Number, Real> result{eliminate(a, none), 0};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    const Real size = std::abs(a(i, i));
    result.first *= size == 0 ? Number(0) : a(i, i) / size;
    result.second += std::log(size);
  }
  return result;
}
Number determinant(Matrix a) {
  Matrix none(a.rows, 0);
  Number product = eliminate(a, none);
  for (std::int64_t i = 0; i < a.rows; ++i) product *= a(i, i);
  return product;
}

Matrix cofactors(const Matrix& a) {
  Matrix result(a.rows, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.rows; ++j) {
      Matrix minor(a.rows - 1, a.rows - 1);
      for (std::int64_t r = 0; r < minor.rows; ++r)
        for (std::int64_t c = 0; c < minor.rows; ++c) minor(r, c) = a(r + (r >= i), c + (c >= j));
      result(i, j) = determinant(minor) * Real((i + j) % 2 == 0 ? 1 : -1);
    }
  return result;
}

Matrix cholesky(const Matrix& a, bool upper) {
  Matrix l(a.rows, a.rows);
  for (std::int64_t j = 0; j < a.rows; ++j)
    for (std::int64_t i = j; i < a.rows; ++i) {
      Number rest = upper ? std::conj(a(j, i)) : a(i, j);
      for (std::int64_t k = 0; k < j; ++k) rest -= l(i, k) * std::conj(l(j, k));
      l(i, j) = i == j ? Number(std::sqrt(rest.real())) : rest / l(j, j);
    }
  return upper ? adjoint(l) : l;
}

/// Q and R by Householder's reflections, with the signs that LAPACK gives.
std::pair<Matrix, Matrix> orthogonalize(Matrix r) {
  Matrix q = identity(r.rows);
  for (std::int64_t k = 0; k < std::min(r.rows, r.columns); ++k) {
    Real below = 0;
    for (std::int64_t i = k + 1; i < r.rows; ++i) below += std::norm(r(i, k));
    const Number alpha = r(k, k);
    if (below == 0 && alpha.imag() == 0) continue;
    const Real size = std::sqrt(below + std::norm(alpha)), beta = alpha.real() >= 0 ? -size : size;
    std::vector<Number> v(static_cast<std::size_t>(r.rows), Number(0));
    v[static_cast<std::size_t>(k)] = 1;
    for (std::int64_t i = k + 1; i < r.rows; ++i) v[static_cast<std::size_t>(i)] = r(i, k) / (alpha - beta);
    const Number tau = (beta - alpha) / beta;
    for (std::int64_t j = 0; j < r.columns; ++j) {
      Number dot = 0;
      for (std::int64_t i = k; i < r.rows; ++i) dot += std::conj(v[static_cast<std::size_t>(i)]) * r(i, j);
      for (std::int64_t i = k; i < r.rows; ++i) r(i, j) -= std::conj(tau) * v[static_cast<std::size_t>(i)] * dot;
    }
    for (std::int64_t i = 0; i < r.rows; ++i) {
      Number dot = 0;
      for (std::int64_t j = k; j < r.rows; ++j) dot += q(i, j) * v[static_cast<std::size_t>(j)];
      for (std::int64_t j = k; j < r.rows; ++j) q(i, j) -= tau * dot * std::conj(v[static_cast<std::size_t>(j)]);
    }
  }
  return {std::move(q), std::move(r)};
}

struct Singular {
  Matrix u, v;  // their columns; those of vanishing values are made up
  std::vector<Real> values;
};

/// Columns after the first `known` such that all are orthonormal, from unit vectors.
void complete(Matrix& u, std::int64_t known) {
  for (std::int64_t trial = 0; known < u.columns && trial < u.rows; ++trial) {
    std::vector<Number> w(static_cast<std::size_t>(u.rows), Number(0));
    w[static_cast<std::size_t>(trial)] = 1;
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t j = 0; j < known; ++j) {
        Number dot = 0;
        for (std::int64_t i = 0; i < u.rows; ++i) dot += std::conj(u(i, j)) * w[static_cast<std::size_t>(i)];
        for (std::int64_t i = 0; i < u.rows; ++i) w[static_cast<std::size_t>(i)] -= dot * u(i, j);
      }
    Real size = 0;
    for (const Number z : w) size += std::norm(z);
    if (std::sqrt(size) < 1e-3L) continue;
    for (std::int64_t i = 0; i < u.rows; ++i) u(i, known) = w[static_cast<std::size_t>(i)] / std::sqrt(size);
    ++known;
  }
}

/// One-sided Jacobi rotations of the columns of a tall matrix until they are orthogonal.
Singular decompose_tall(Matrix a) {
  Matrix v = identity(a.columns);
  for (int sweep = 0; sweep < 60; ++sweep)
    for (std::int64_t p = 0; p < a.columns; ++p)
      for (std::int64_t q = p + 1; q < a.columns; ++q) {
        Real pp = 0, qq = 0;
        Number pq = 0;
        for (std::int64_t i = 0; i < a.rows; ++i)
          pp += std::norm(a(i, p)), qq += std::norm(a(i, q)), pq += std::conj(a(i, p)) * a(i, q);
        if (std::abs(pq) <= 1e-19L * std::sqrt(pp * qq)) continue;
        const Number phase = pq / std::abs(pq);
        const Real zeta = (qq - pp) / (2 * std::abs(pq));
        const Real t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const Real c = 1 / std::sqrt(1 + t * t), s = c * t;
        for (Matrix* m : {&a, &v})
          for (std::int64_t i = 0; i < m->rows; ++i) {
            const Number x = (*m)(i, p), y = (*m)(i, q) * std::conj(phase);
            (*m)(i, p) = c * x - s * y, (*m)(i, q) = s * x + c * y;
          }
      }
  std::vector<std::pair<Real, std::int64_t>> order;
  for (std::int64_t j = 0; j < a.columns; ++j) {
    Real size = 0;
    for (std::int64_t i = 0; i < a.rows; ++i) size += std::norm(a(i, j));
    order.emplace_back(-std::sqrt(size), j);
  }
  std::ranges::stable_sort(order);
  Singular s{Matrix(a.rows, a.rows), Matrix(a.columns, a.columns), {}};
  std::int64_t known = 0;
  for (std::int64_t j = 0; j < a.columns; ++j) {
    const auto [size, from] = order[static_cast<std::size_t>(j)];
    s.values.push_back(-size);
    for (std::int64_t i = 0; i < a.columns; ++i) s.v(i, j) = v(i, from);
    if (-size <= 1e-17L * s.values[0]) continue;
    for (std::int64_t i = 0; i < a.rows; ++i) s.u(i, known) = a(i, from) / -size;
    ++known;
  }
  complete(s.u, known);
  return s;
}

Singular decompose(const Matrix& a) {
  if (a.rows >= a.columns) return decompose_tall(a);
  Singular s = decompose_tall(adjoint(a));
  std::swap(s.u, s.v);
  return s;
}

/// Eigenvalues, ascending, above eigenvectors: from the singular vectors of the matrix, shifted to be positive
/// definite.
Matrix eigen(const Matrix& a) {
  Real shift = 0;
  Matrix moved = a;
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.rows; ++j) {
      moved(i, j) = i >= j ? a(i, j) : std::conj(a(j, i));
      if (i == j) moved(i, j) = moved(i, j).real();
      shift += std::abs(moved(i, j));
    }
  for (std::int64_t i = 0; i < a.rows; ++i) moved(i, i) += shift;
  const Singular s = decompose_tall(moved);
  Matrix packed(a.rows + 1, a.rows);
  for (std::int64_t j = 0; j < a.rows; ++j) {
    const std::int64_t from = a.rows - 1 - j;
    packed(0, j) = s.values[static_cast<std::size_t>(from)] - shift;
    for (std::int64_t i = 0; i < a.rows; ++i) packed(i + 1, j) = s.v(i, from);
  }
  return packed;
}

Matrix packed_svd(const Matrix& a, bool full) {
  const Singular s = decompose(a);
  const std::int64_t k = std::min(a.rows, a.columns), width = full ? std::max(a.rows, a.columns) : k;
  Matrix packed(a.rows + 1 + a.columns, width);
  for (std::int64_t j = 0; j < width; ++j) {
    for (std::int64_t i = 0; i < a.rows && j < (full ? a.rows : k); ++i) packed(i, j) = s.u(i, j);
    if (j < k) packed(a.rows, j) = s.values[static_cast<std::size_t>(j)];
    for (std::int64_t i = 0; i < a.columns && j < (full ? a.columns : k); ++i)
      packed(a.rows + 1 + i, j) = std::conj(s.v(i, j));
  }
  return packed;
}

Matrix packed_qr(const Matrix& a, bool full) {
  const auto [q, r] = orthogonalize(a);
  const std::int64_t k = full ? a.rows : std::min(a.rows, a.columns);
  Matrix packed(a.rows + a.columns, k);
  for (std::int64_t j = 0; j < k; ++j) {
    for (std::int64_t i = 0; i < a.rows; ++i) packed(i, j) = q(i, j);
    for (std::int64_t i = j; i < a.columns; ++i) packed(a.rows + i, j) = r(j, i);
  }
  return packed;
}

Matrix pseudo_inverse(const Matrix& a, Real tolerance) {
  const Singular s = decompose(a);
  Matrix result(a.columns, a.rows);
  for (std::size_t k = 0; k < s.values.size(); ++k)
    if (s.values[k] > tolerance * s.values[0])
      for (std::int64_t i = 0; i < a.columns; ++i)
        for (std::int64_t j = 0; j < a.rows; ++j)
          result(i, j) +=
              s.v(i, static_cast<std::int64_t>(k)) * std::conj(s.u(j, static_cast<std::int64_t>(k))) / s.values[k];
  return result;
}

Matrix row_of(const std::vector<Real>& values) {
  Matrix row(1, static_cast<std::int64_t>(values.size()));
  std::ranges::copy(values, row.at.begin());
  return row;
}

Matrix read_matrix(const ReferenceTensor& x, std::int64_t number, std::int64_t rows, std::int64_t columns) {
  Matrix m(rows, columns);
  const auto start = static_cast<std::size_t>(number * rows * columns);
  for (std::size_t i = 0; i < m.at.size(); ++i)
    m.at[i] = is_complex(x.dtype) ? Number(x.complexes[start + i]) : Number(x.floats[start + i]);
  return m;
}

/// A function of each matrix of a stack, and of the matrices of a second operand where there is one.
template <class F> ReferenceTensor each_matrix(const GraphNode& node, const ReferenceOperands& operands, F&& evaluate) {
  const ReferenceTensor& a = *operands[0];
  const ReferenceTensor& b = *operands.back();
  const bool two = operands.size() == 2;
  const auto batch_of = [](const Shape& s) { return Shape(std::span(s).first(s.rank() - 2u)); };
  const auto rows = [](const Shape& s) { return s[s.rank() - 2u]; };
  const Shape batch = two ? *broadcast_shapes(batch_of(a.shape), batch_of(b.shape)) : batch_of(a.shape);
  const Shape left = stretched_strides(batch_of(a.shape), batch);
  const Shape right = two ? stretched_strides(batch_of(b.shape), batch) : dense_strides(batch);
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  Odometer position(batch);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    const Matrix first = read_matrix(a, position.offset(left), rows(a.shape), a.shape.back());
    const Matrix second = two ? read_matrix(b, position.offset(right), rows(b.shape), b.shape.back()) : Matrix(0, 0);
    for (const Number z : evaluate(first, second).at) {
      if (is_complex(node.dtype))
        result.complexes.emplace_back(static_cast<double>(z.real()), static_cast<double>(z.imag()));
      else
        result.floats.push_back(static_cast<double>(z.real()));
    }
  }
  return result;
}

}  // namespace

ReferenceTensor Cholesky::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Cholesky>(node);
  return each_matrix(node, operands, [&](const Matrix& a, const Matrix&) { return cholesky(a, op.upper.value); });
}
ReferenceTensor Solve::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [](const Matrix& a, const Matrix& b) { return solve(a, b); });
}
ReferenceTensor SolveTriangular::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<SolveTriangular>(node);
  return each_matrix(node, operands,
                     [&](const Matrix& a, const Matrix& b) { return substitute(a, b, op.upper.value, op.unit.value); });
}
ReferenceTensor MatrixOfMatrix::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [&](const Matrix& a, const Matrix&) {
    return node.op == Op::inv ? solve(a, identity(a.rows)) : cofactors(a);
  });
}
ReferenceTensor Det::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [](const Matrix& a, const Matrix&) {
    Matrix one(1, 1);
    one(0, 0) = determinant(a);
    return one;
  });
}
ReferenceTensor Slogdet::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [](const Matrix& a, const Matrix&) {
    const auto [sign, size] = signed_log(a);
    Matrix both(1, 2);
    both(0, 0) = sign, both(0, 1) = size;
    return both;
  });
}
ReferenceTensor Qr::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Qr>(node);
  return each_matrix(node, operands, [&](const Matrix& a, const Matrix&) { return packed_qr(a, op.complete.value); });
}
ReferenceTensor Eigh::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [](const Matrix& a, const Matrix&) { return eigen(a); });
}
ReferenceTensor Eigvalsh::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [](const Matrix& a, const Matrix&) {
    Matrix values = eigen(a);
    values.at.resize(static_cast<std::size_t>(a.rows));
    return values;
  });
}
ReferenceTensor Svd::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Svd>(node);
  return each_matrix(node, operands, [&](const Matrix& a, const Matrix&) { return packed_svd(a, op.full.value); });
}
ReferenceTensor Svdvals::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return each_matrix(node, operands, [](const Matrix& a, const Matrix&) { return row_of(decompose(a).values); });
}
ReferenceTensor Pinv::reference(const GraphNode& node, const ReferenceOperands& operands) {
  std::size_t next = 0;  // the tolerance of the matrix at hand
  return each_matrix(node, {operands[0]}, [&](const Matrix& a, const Matrix&) {
    const ReferenceTensor& tolerance = *operands[1];
    const std::size_t i = next++;
    return pseudo_inverse(
        a, is_complex(tolerance.dtype) ? Real(tolerance.complexes[i].real()) : Real(tolerance.floats[i]));
  });
}

}  // namespace fermata::ops
