// LAPACK's routines behind dispatch/matrix_routines.h.
#ifdef FERMATA_LAPACK_FOUND
#include "dispatch/matrix_routines.h"

#include <algorithm>
#include <vector>

#include "codegen_cpu/library/lapack_calls.h"

namespace fermata {
namespace {

lapack_int size_of(std::int64_t n) { return static_cast<lapack_int>(n); }

template <class R>
bool eigen_of_complex(std::int64_t n, std::complex<R>* a, std::complex<R>* values, std::complex<R>* vectors) {
  const lapack_int size = size_of(n);
  const char wanted = vectors == nullptr ? 'N' : 'V';
  if constexpr (sizeof(R) == 4)
    return lapack::called([&] {
             return LAPACKE_cgeev(lapack::kByColumns, 'N', wanted, size, a, size, values, nullptr, size, vectors, size);
           }) == 0;
  else
    return lapack::called([&] {
             return LAPACKE_zgeev(lapack::kByColumns, 'N', wanted, size, a, size, values, nullptr, size, vectors, size);
           }) == 0;
}

/// Eigenvectors of a pair of conjugate values lie in two columns: the real and the imaginary part of the first.
template <class R> bool eigen_of_real(std::int64_t n, R* a, std::complex<R>* values, std::complex<R>* vectors) {
  const lapack_int size = size_of(n);
  const char wanted = vectors == nullptr ? 'N' : 'V';
  const auto count = static_cast<std::size_t>(n);
  std::vector<R> re(count), im(count), parts(vectors == nullptr ? 0 : count * count);
  const lapack_int outcome = lapack::called([&] {
    if constexpr (sizeof(R) == 4)
      return LAPACKE_sgeev(lapack::kByColumns, 'N', wanted, size, a, size, re.data(), im.data(), nullptr, size,
                           parts.data(), size);
    else
      return LAPACKE_dgeev(lapack::kByColumns, 'N', wanted, size, a, size, re.data(), im.data(), nullptr, size,
                           parts.data(), size);
  });
  if (outcome != 0) return false;
  for (std::size_t j = 0; j < count; ++j) values[j] = {re[j], im[j]};
  if (vectors == nullptr) return true;
  for (std::size_t j = 0; j < count; ++j) {
    const bool is_pair = im[j] != 0;
    for (std::size_t i = 0; i < count; ++i) {
      const R first = parts[j * count + i], second = is_pair ? parts[(j + 1) * count + i] : R(0);
      vectors[j * count + i] = {first, second};
      if (is_pair) vectors[(j + 1) * count + i] = {first, -second};
    }
    j += is_pair;
  }
  return true;
}

bool eigen(DType dtype, std::int64_t n, void* a, void* values, void* vectors) {
  using C32 = std::complex<float>;
  using C64 = std::complex<double>;
  LAPACKE_set_nancheck(0);
  switch (dtype) {
    case DType::f32:
      return eigen_of_real(n, static_cast<float*>(a), static_cast<C32*>(values), static_cast<C32*>(vectors));
    case DType::f64:
      return eigen_of_real(n, static_cast<double*>(a), static_cast<C64*>(values), static_cast<C64*>(vectors));
    case DType::c64:
      return eigen_of_complex(n, static_cast<C32*>(a), static_cast<C32*>(values), static_cast<C32*>(vectors));
    default: return eigen_of_complex(n, static_cast<C64*>(a), static_cast<C64*>(values), static_cast<C64*>(vectors));
  }
}

void lu(DType dtype, std::int64_t m, std::int64_t n, void* a, std::int32_t* exchanges) {
  const lapack_int rows = size_of(m), columns = size_of(n);
  std::vector<lapack_int> pivots(static_cast<std::size_t>(std::min(m, n)));
  // A pivot that vanishes is in U.
  const auto factorize = [&](auto routine, auto* elements) {
    lapack::called([&] { return routine(lapack::kByColumns, rows, columns, elements, rows, pivots.data()); });
  };
  switch (dtype) {
    case DType::f32: factorize(LAPACKE_sgetrf, static_cast<float*>(a)); break;
    case DType::f64: factorize(LAPACKE_dgetrf, static_cast<double*>(a)); break;
    case DType::c64: factorize(LAPACKE_cgetrf, static_cast<std::complex<float>*>(a)); break;
    default: factorize(LAPACKE_zgetrf, static_cast<std::complex<double>*>(a));
  }
  for (std::size_t i = 0; i < pivots.size(); ++i) exchanges[i] = static_cast<std::int32_t>(pivots[i]) - 1;
}

void ldl(DType dtype, std::int64_t n, void* a, std::int32_t* exchanges) {
  const lapack_int size = size_of(n);
  std::vector<lapack_int> pivots(static_cast<std::size_t>(n));
  LAPACKE_set_nancheck(0);
  // A pivot that vanishes is in D.
  const auto factorize = [&](auto routine, auto* elements) {
    lapack::called([&] { return routine(lapack::kByColumns, 'L', size, elements, size, pivots.data()); });
  };
  switch (dtype) {
    case DType::f32: factorize(LAPACKE_ssytrf, static_cast<float*>(a)); break;
    case DType::f64: factorize(LAPACKE_dsytrf, static_cast<double*>(a)); break;
    case DType::c64: factorize(LAPACKE_chetrf, static_cast<std::complex<float>*>(a)); break;
    default: factorize(LAPACKE_zhetrf, static_cast<std::complex<double>*>(a));
  }
  // Counted from 1; negative in blocks of two.
  for (std::size_t i = 0; i < pivots.size(); ++i)
    exchanges[i] = static_cast<std::int32_t>(pivots[i] > 0 ? pivots[i] - 1 : pivots[i]);
}

const bool provided = (matrix_routines = {.eigen = &eigen, .lu = &lu, .ldl = &ldl}, true);

}  // namespace
}  // namespace fermata
#endif
