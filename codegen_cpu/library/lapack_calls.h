// The routines of LAPACK by element type. The only header that includes lapacke.h, whose macros are dropped again.
#pragma once

#include <complex>

#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>
#undef complex
#undef I

#include <mutex>

#include "ir/error.h"
#include "ir/fork.h"

namespace fermata::lapack {

/// Gives back what a routine says of its matrix. That it had no memory says nothing of the matrix.
inline lapack_int checked(lapack_int outcome) {
  if (outcome == LAPACK_WORK_MEMORY_ERROR || outcome == LAPACK_TRANSPOSE_MEMORY_ERROR)
    throw OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError", "LAPACK cannot allocate a work array", {}, {}));
  return outcome;
}

/// While it lives no other thread is in LAPACK, where that is an OpenBLAS without threads: unless it was built with
/// locks, which it does not tell, calls that run side by side share its buffers and give wrong numbers at times.
class OneAtATime {
 public:
  OneAtATime();

 private:
  std::unique_lock<ForkSafeMutex> lock_;
};

// FERMATA_LAPACK(name, parameters, arguments, s, d, c, z): one overload for each type T, real part R.
#define FERMATA_LAPACK(name, parameters, arguments, s, d, c, z) \
  template <class T, class R> lapack_int name parameters {      \
    const OneAtATime turn;                                      \
    if constexpr (std::is_same_v<T, float>)                     \
      return checked(LAPACKE_##s arguments);                    \
    else if constexpr (std::is_same_v<T, double>)               \
      return checked(LAPACKE_##d arguments);                    \
    else if constexpr (std::is_same_v<T, std::complex<float>>)  \
      return checked(LAPACKE_##c arguments);                    \
    else                                                        \
      return checked(LAPACKE_##z arguments);                    \
  }
constexpr int kByColumns = LAPACK_COL_MAJOR;

FERMATA_LAPACK(potrf, (lapack_int n, T* a), (kByColumns, 'L', n, a, n), spotrf, dpotrf, cpotrf, zpotrf)
FERMATA_LAPACK(getrf, (lapack_int n, T* a, lapack_int* pivots), (kByColumns, n, n, a, n, pivots), sgetrf, dgetrf,
               cgetrf, zgetrf)
FERMATA_LAPACK(getrs, (lapack_int n, lapack_int k, const T* a, const lapack_int* pivots, T* b),
               (kByColumns, 'N', n, k, a, n, pivots, b, n), sgetrs, dgetrs, cgetrs, zgetrs)
FERMATA_LAPACK(getri, (lapack_int n, T* a, const lapack_int* pivots), (kByColumns, n, a, n, pivots), sgetri, dgetri,
               cgetri, zgetri)
FERMATA_LAPACK(trtrs, (char triangle, char diagonal, lapack_int n, lapack_int k, const T* a, T* b),
               (kByColumns, triangle, 'N', diagonal, n, k, a, n, b, n), strtrs, dtrtrs, ctrtrs, ztrtrs)
FERMATA_LAPACK(geqrf, (lapack_int m, lapack_int n, T* a, T* tau), (kByColumns, m, n, a, m, tau), sgeqrf, dgeqrf, cgeqrf,
               zgeqrf)
FERMATA_LAPACK(orgqr, (lapack_int m, lapack_int n, lapack_int k, T* a, const T* tau), (kByColumns, m, n, k, a, m, tau),
               sorgqr, dorgqr, cungqr, zungqr)
FERMATA_LAPACK(heevd, (char vectors, lapack_int n, T* a, R* w), (kByColumns, vectors, 'L', n, a, n, w), ssyevd, dsyevd,
               cheevd, zheevd)
FERMATA_LAPACK(gesdd, (char vectors, lapack_int m, lapack_int n, T* a, R* s, T* u, T* vh, lapack_int vh_rows),
               (kByColumns, vectors, m, n, a, m, s, u, m, vh, vh_rows), sgesdd, dgesdd, cgesdd, zgesdd)
#undef FERMATA_LAPACK

}  // namespace fermata::lapack
