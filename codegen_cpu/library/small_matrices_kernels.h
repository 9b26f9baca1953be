// Factorizations of many small matrices at once: each lane of a vector is a matrix. The loops, compiled once per
// instruction set (small_matrices_*.cpp).
//
// Element (i, j) of all matrices of a tile is one vector. Nothing is contracted and lanes do not mix, so that the bits
// of a result depend neither on the instruction set nor on the other matrices.
#pragma once

#include <cstdint>

namespace fermata {

/// Bit i: matrix i cannot be treated.
using FailedLanes = std::uint32_t;

template <class T> struct SmallMatrixKernels {
  std::int64_t lanes;
  /// LU with partial pivoting in place, of n rows; rows of `b`, of k columns, are exchanged and eliminated with them.
  /// Each lane of `sign` becomes 1 or -1: whether the rows are in an even or odd order. A pivot that vanishes fails.
  FailedLanes (*eliminate)(T* a, std::int64_t n, T* b, std::int64_t k, T* sign);
  /// b becomes x of a x = b, a being triangular. A zero on the diagonal fails.
  FailedLanes (*substitute)(const T* a, std::int64_t n, T* b, std::int64_t k, bool upper, bool unit);
  /// The lower triangle of a becomes its factor; the upper one is not touched.
  FailedLanes (*cholesky)(T* a, std::int64_t n);
  /// Eigenvalues of symmetric matrices, of which the lower triangle is read, ascending, and eigenvectors as columns
  /// unless `vectors` is null. `a` is overwritten. NaN for a matrix that is not finite; one that does not converge
  /// fails.
  FailedLanes (*eigen)(T* a, std::int64_t n, T* vectors, T* values);
};

struct SmallMatrices {
  SmallMatrixKernels<float> f32;
  SmallMatrixKernels<double> f64;
};
extern const SmallMatrices kSmallMatricesBaseline;
#if defined(__x86_64__)
extern const SmallMatrices kSmallMatricesAvx2;
extern const SmallMatrices kSmallMatricesAvx512;
#endif

}  // namespace fermata
