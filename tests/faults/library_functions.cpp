// Functions of oneDNN and LAPACK with points that may fail: as they do where they get no memory.
#include <complex>

#include "tests/faults/count.h"
#include "tests/faults/real_function.h"

using fermata::FaultKind;
using fermata::faults::fails;
using fermata::faults::real_function;

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#elif __has_include(<dnnl.h>)
#include <dnnl.h>
#endif

#define FERMATA_LIBRARY_FUNCTION(name, failure, parameters, arguments)              \
  extern "C" decltype(failure) name parameters {                                    \
    static const auto real = real_function<decltype(failure)(*) parameters>(#name); \
    return fails(FaultKind::library) ? failure : real arguments;                    \
  }

#ifdef DNNL_VERSION_MAJOR
FERMATA_LIBRARY_FUNCTION(dnnl_primitive_create, dnnl_out_of_memory,
                         (dnnl_primitive_t * primitive, const_dnnl_primitive_desc_t description),
                         (primitive, description))
FERMATA_LIBRARY_FUNCTION(dnnl_primitive_execute, dnnl_out_of_memory,
                         (const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                          const dnnl_exec_arg_t* parts),
                         (primitive, stream, count, parts))
FERMATA_LIBRARY_FUNCTION(dnnl_stream_create, dnnl_out_of_memory,
                         (dnnl_stream_t * stream, dnnl_engine_t engine, unsigned flags), (stream, engine, flags))
#endif

// LAPACKE gives this number where it cannot allocate.
#define FERMATA_NO_WORK_ARRAY (-1010)
#define FERMATA_LAPACK_FUNCTION(routine, parameters, arguments)                                            \
  FERMATA_LIBRARY_FUNCTION(LAPACKE_s##routine, FERMATA_NO_WORK_ARRAY, parameters(float, float), arguments) \
  FERMATA_LIBRARY_FUNCTION(LAPACKE_d##routine, FERMATA_NO_WORK_ARRAY, parameters(double, double), arguments)
#define FERMATA_GETRF(T, R) (int order, int m, int n, T* a, int lda, int* pivots)
#define FERMATA_GETRS(T, R) (int order, char how, int n, int k, const T* a, int lda, const int* pivots, T* b, int ldb)
#define FERMATA_GETRI(T, R) (int order, int n, T* a, int lda, const int* pivots)
#define FERMATA_POTRF(T, R) (int order, char triangle, int n, T* a, int lda)
#define FERMATA_GEQRF(T, R) (int order, int m, int n, T* a, int lda, T* tau)
#define FERMATA_ORGQR(T, R) (int order, int m, int n, int k, T* a, int lda, const T* tau)
#define FERMATA_HEEVD(T, R) (int order, char vectors, char triangle, int n, T* a, int lda, R* w)
#define FERMATA_GESDD(T, R) (int order, char vectors, int m, int n, T* a, int lda, R* s, T* u, int ldu, T* vh, int ldvh)
FERMATA_LAPACK_FUNCTION(getrf, FERMATA_GETRF, (order, m, n, a, lda, pivots))
FERMATA_LAPACK_FUNCTION(getrs, FERMATA_GETRS, (order, how, n, k, a, lda, pivots, b, ldb))
FERMATA_LAPACK_FUNCTION(getri, FERMATA_GETRI, (order, n, a, lda, pivots))
FERMATA_LAPACK_FUNCTION(potrf, FERMATA_POTRF, (order, triangle, n, a, lda))
FERMATA_LAPACK_FUNCTION(geqrf, FERMATA_GEQRF, (order, m, n, a, lda, tau))
FERMATA_LAPACK_FUNCTION(orgqr, FERMATA_ORGQR, (order, m, n, k, a, lda, tau))
FERMATA_LAPACK_FUNCTION(syevd, FERMATA_HEEVD, (order, vectors, triangle, n, a, lda, w))
FERMATA_LAPACK_FUNCTION(gesdd, FERMATA_GESDD, (order, vectors, m, n, a, lda, s, u, ldu, vh, ldvh))
