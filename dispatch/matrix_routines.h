// Single-matrix routines called by frontend operators and provided by a library of the CPU backend.
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace fermata {

/// Matrices are column-major, of f32, f64, c64 or c128, and are overwritten. Functions return false if an iteration
/// does not converge.
struct MatrixRoutines {
  /// Eigenvalues of a [n, n] and, unless null, eigenvectors as columns; always complex.
  bool (*eigen)(DType dtype, std::int64_t n, void* a, void* values, void* vectors) = nullptr;
  /// a [m, n] becomes its factors L and U; row i was exchanged with row exchanges[i] >= i, for i in order.
  void (*lu)(DType dtype, std::int64_t m, std::int64_t n, void* a, std::int32_t* exchanges) = nullptr;
  /// The lower triangle of a Hermitian a [n, n] becomes D and, below it, L, by Bunch and Kaufman's pivoting. Pivot k is
  /// the number a[k, k], and row k was exchanged with row exchanges[k] >= k; or it is a block of two, exchanges[k] and
  /// exchanges[k + 1] are -1 - row, and row k + 1 was exchanged with that one. Columns of L left of the pivot were not.
  void (*ldl)(DType dtype, std::int64_t n, void* a, std::int32_t* exchanges) = nullptr;
};
/// Members are null in a build without LAPACK.
extern constinit MatrixRoutines matrix_routines;

}  // namespace fermata
