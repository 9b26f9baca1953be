// The routines of LAPACK by element type. The only header that includes lapacke.h, whose macros are dropped again.
#pragma once

#include <complex>

#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>
#undef complex
#undef I

#include "runtime/function_ref.h"

namespace fermata::lapack {

/// Calls a routine, and gives back what it says of its matrix; that it had no memory says nothing of the matrix. The
/// only way to call one: where LAPACK is an OpenBLAS without threads, no other thread is in it meanwhile. Unless that
/// was built with locks, which it does not tell, calls that run side by side share its buffers and give wrong numbers
/// at times.
lapack_int called(FunctionRef<lapack_int()> routine);
/// Whether that is so: threads that call it in turns take longer than one.
bool is_for_one_thread();

// FERMATA_LAPACK(name, parameters, arguments, s, d, c, z): one overload for each type T, real part R.
#define FERMATA_LAPACK(name, parameters, arguments, s, d, c, z) \
  template <class T, class R> lapack_int name parameters {      \
    if constexpr (std::is_same_v<T, float>)                     \
      return called([&] { return LAPACKE_##s arguments; });     \
    else if constexpr (std::is_same_v<T, double>)               \
      return called([&] { return LAPACKE_##d arguments; });     \
    else if constexpr (std::is_same_v<T, std::complex<float>>)  \
      return called([&] { return LAPACKE_##c arguments; });     \
    else                                                        \
      return called([&] { return LAPACKE_##z arguments; });     \
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
