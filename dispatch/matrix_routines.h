// Routines for one matrix that operators of the frontend call, which a library of the CPU backend provides.
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace fermata {

/// Matrices lie column by column, of f32, f64, c64 or c128, and are overwritten. False where an iteration did not end.
struct MatrixRoutines {
  /// Eigenvalues of a [n, n] and, unless null, eigenvectors as columns: complex numbers, whatever the matrix.
  bool (*eigen)(DType dtype, std::int64_t n, void* a, void* values, void* vectors) = nullptr;
  /// a [m, n] becomes its factors L and U; row i was exchanged with row exchanges[i] >= i, for i in order.
  void (*lu)(DType dtype, std::int64_t m, std::int64_t n, void* a, std::int32_t* exchanges) = nullptr;
};
/// Null in a build without LAPACK.
extern constinit MatrixRoutines matrix_routines;

}  // namespace fermata
