// The body of small_matrices_*.cpp. The includer defines FERMATA_VECTOR_BYTES.
//
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>

#include "codegen_cpu/library/small_matrices_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

template <class T> struct IntegerOf;
template <> struct IntegerOf<float> { using type = std::int32_t; };
template <> struct IntegerOf<double> { using type = std::int64_t; };

template <class T> struct Lanes {
  static constexpr int kCount = FERMATA_VECTOR_BYTES / static_cast<int>(sizeof(T));
  using Integer = typename IntegerOf<T>::type;
  typedef T Vector __attribute__((vector_size(FERMATA_VECTOR_BYTES), may_alias));
  typedef Integer Mask __attribute__((vector_size(FERMATA_VECTOR_BYTES)));

  static Vector magnitude(Vector x) {
    constexpr auto kSign = static_cast<Integer>(Integer{1} << (8 * sizeof(Integer) - 2) << 1);
    return reinterpret_cast<Vector>(reinterpret_cast<Mask>(x) & ~(Mask{} + kSign));
  }
  static Vector root(Vector x) {
    for (int i = 0; i < kCount; ++i)
      if constexpr (sizeof(T) == 4)
        x[i] = __builtin_sqrtf(x[i]);
      else
        x[i] = __builtin_sqrt(x[i]);
    return x;
  }
  static FailedLanes bits(Mask m) {
    FailedLanes bits = 0;
    for (int i = 0; i < kCount; ++i) bits |= static_cast<FailedLanes>(m[i] & 1) << i;
    return bits;
  }
  static bool any(Mask m) {
    Integer set = 0;
    for (int i = 0; i < kCount; ++i) set |= m[i];
    return set != 0;
  }
};

/// Exchanges row k, in each lane, with the row whose first element is largest; gives the lanes in which it was another.
template <class T> typename Lanes<T>::Mask exchange_rows(typename Lanes<T>::Vector* a, std::int64_t n,
                                                         typename Lanes<T>::Vector* b, std::int64_t columns,
                                                         std::int64_t k) {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  using Mask = typename L::Mask;
  const auto number = [](std::int64_t i) { return Mask{} + static_cast<typename L::Integer>(i); };
  Vector best = L::magnitude(a[k * n + k]);
  Mask at = number(k);
  for (std::int64_t i = k + 1; i < n; ++i) {
    const Vector size = L::magnitude(a[i * n + k]);
    const Mask larger = (size > best) | (size != size);  // so that a matrix with NaN is not singular
    best = larger ? size : best;
    at = larger ? number(i) : at;
  }
  const Mask moves = at != number(k);
  if (!L::any(moves)) return moves;
  const auto exchange = [](Mask here, Vector* x, Vector* y, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
      const Vector upper = x[j], lower = y[j];
      x[j] = here ? lower : upper;
      y[j] = here ? upper : lower;
    }
  };
  for (std::int64_t i = k + 1; i < n; ++i) {
    const Mask here = at == number(i);
    if (!L::any(here)) continue;
    exchange(here, a + k * n + k, a + i * n + k, n - k);
    exchange(here, b + k * columns, b + i * columns, columns);
  }
  return moves;
}

template <class T> FailedLanes eliminate(T* matrix, std::int64_t n, T* right, std::int64_t columns, T* sign) {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  using Mask = typename L::Mask;
  auto* const a = reinterpret_cast<Vector*>(matrix);
  auto* const b = reinterpret_cast<Vector*>(right);
  Vector order = Vector{} + T(1);
  Mask failed{};
  for (std::int64_t k = 0; k < n; ++k) {
    const Mask moved = exchange_rows<T>(a, n, b, columns, k);
    order = moved ? -order : order;
    const Vector pivot = a[k * n + k];
    const Mask vanishes = pivot == Vector{};
    failed |= vanishes;
    for (std::int64_t i = k + 1; i < n; ++i) {
      const Vector quotient = a[i * n + k] / pivot, factor = vanishes ? Vector{} : quotient;
      for (std::int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      for (std::int64_t j = 0; j < columns; ++j) b[i * columns + j] -= factor * b[k * columns + j];
    }
  }
  *reinterpret_cast<Vector*>(sign) = order;
  return L::bits(failed);
}

template <class T>
FailedLanes substitute(const T* matrix, std::int64_t n, T* right, std::int64_t columns, bool upper, bool unit) {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  const auto* const a = reinterpret_cast<const Vector*>(matrix);
  auto* const b = reinterpret_cast<Vector*>(right);
  typename L::Mask failed{};
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = upper ? n - 1 - step : step, first = upper ? i + 1 : 0, last = upper ? n : i;
    const Vector diagonal = unit ? Vector{} + T(1) : a[i * n + i];
    failed |= diagonal == Vector{};
    for (std::int64_t j = 0; j < columns; ++j) {
      Vector x = b[i * columns + j];
      for (std::int64_t q = first; q < last; ++q) x -= a[i * n + q] * b[q * columns + j];
      b[i * columns + j] = unit ? x : x / diagonal;
    }
  }
  return L::bits(failed);
}

template <class T> FailedLanes cholesky(T* matrix, std::int64_t n) {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  auto* const a = reinterpret_cast<Vector*>(matrix);
  typename L::Mask positive = ~typename L::Mask{};
  for (std::int64_t j = 0; j < n; ++j) {
    Vector square = a[j * n + j];
    for (std::int64_t q = 0; q < j; ++q) square -= a[j * n + q] * a[j * n + q];
    positive &= square > Vector{};
    const Vector diagonal = L::root(square);
    a[j * n + j] = diagonal;
    for (std::int64_t i = j + 1; i < n; ++i) {
      Vector x = a[i * n + j];
      for (std::int64_t q = 0; q < j; ++q) x -= a[i * n + q] * a[j * n + q];
      a[i * n + j] = x / diagonal;
    }
  }
  return L::bits(~positive);
}

template <class T>
constexpr SmallMatrixKernels<T> kSmallMatrixKernels{Lanes<T>::kCount, &eliminate<T>, &substitute<T>, &cholesky<T>};
constexpr SmallMatrices kKernels{kSmallMatrixKernels<float>, kSmallMatrixKernels<double>};

}  // namespace
}  // namespace fermata
