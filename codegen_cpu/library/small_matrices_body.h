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
  static void exchange(Mask here, Vector& x, Vector& y) {
    const Vector first = x, second = y;
    x = here ? second : first, y = here ? first : second;
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
    for (std::int64_t j = 0; j < count; ++j) L::exchange(here, x[j], y[j]);
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

/// Element (i, j) of a symmetric matrix of which the lower triangle is kept.
template <class V> V& lower(V* a, std::int64_t n, std::int64_t i, std::int64_t j) {
  return i < j ? a[j * n + i] : a[i * n + j];
}

/// Symmetric matrices by Jacobi's method (Golub and Van Loan, "Matrix Computations", 8.5), in sweeps over all elements
/// below the diagonal. A lane of which an element is negligible keeps all of its bits, so that it does not matter what
/// the others do.
template <class T> struct JacobiSweeps {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  using Mask = typename L::Mask;
  static constexpr int kMost = 40;

  Vector* const a;
  Vector* const v;
  const std::int64_t n;

  static Vector number(T x) { return Vector{} + x; }
  static Vector choose(Mask here, Vector x, Vector y) { return here ? x : y; }

  /// Turns x and y into x - s (y + r x) and y + s (x - r y): with r = s / (1 + c) these are c x - s y and s x + c y.
  static void turn(Mask here, Vector& x, Vector& y, Vector s, Vector r) {
    const Vector one = x, other = y;
    x = choose(here, one - s * (other + r * one), one);
    y = choose(here, other + s * (one - r * other), other);
  }

  bool annihilate(std::int64_t p, std::int64_t q, Vector negligible) const {
    const Vector element = lower(a, n, p, q);
    const Mask here = L::magnitude(element) > negligible;
    if (!L::any(here)) return false;
    Vector &first = a[p * n + p], &second = a[q * n + q];
    const Vector cotangent = (second - first) / (number(2) * choose(here, element, number(1)));
    const Vector size = L::magnitude(cotangent), root = L::root(number(1) + cotangent * cotangent);
    const Vector magnitude = number(1) / (size + root);
    const Vector t = choose(cotangent < Vector{}, -magnitude, magnitude);
    const Vector c = number(1) / L::root(number(1) + t * t), s = t * c, r = s / (number(1) + c);
    first = choose(here, first - t * element, first), second = choose(here, second + t * element, second);
    lower(a, n, p, q) = choose(here, Vector{}, element);
    for (std::int64_t k = 0; k < n; ++k)
      if (k != p && k != q) turn(here, lower(a, n, k, p), lower(a, n, k, q), s, r);
    if (v != nullptr)
      for (std::int64_t k = 0; k < n; ++k) turn(here, v[k * n + p], v[k * n + q], s, r);
    return true;
  }
  /// False if some lane does not converge.
  bool run(Vector negligible) const {
    for (int sweep = 0; sweep < kMost; ++sweep) {
      bool turns = false;
      for (std::int64_t q = 1; q < n; ++q)
        for (std::int64_t p = 0; p < q; ++p) turns = annihilate(p, q, negligible) || turns;
      if (!turns) return true;
    }
    return false;
  }
};

/// A power of two for each lane: divided by it, numbers of which `size` is the largest are below 2, and near 1 unless
/// they are subnormal. The division is exact.
template <class T> typename Lanes<T>::Vector unit_of(typename Lanes<T>::Vector size) {
  using L = Lanes<T>;
  using Mask = typename L::Mask;
  constexpr bool kSingle = sizeof(T) == 4;
  constexpr T kLeast = kSingle ? T(__FLT_MIN__) : T(__DBL_MIN__);
  using Bits = typename L::Integer;
  constexpr Bits kExponent = kSingle ? Bits(0x7f800000) : static_cast<Bits>(0x7ff0000000000000);
  const auto power = reinterpret_cast<typename L::Vector>(reinterpret_cast<Mask>(size) & (Mask{} + kExponent));
  const auto least = typename L::Vector{} + kLeast;
  return size >= least ? power : least;
}

template <class T> FailedLanes eigen(T* matrix, std::int64_t n, T* vectors, T* values) {
  using L = Lanes<T>;
  using Vector = typename L::Vector;
  using Mask = typename L::Mask;
  auto* const a = reinterpret_cast<Vector*>(matrix);
  auto* const v = reinterpret_cast<Vector*>(vectors);
  auto* const w = reinterpret_cast<Vector*>(values);
  constexpr bool kSingle = sizeof(T) == 4;
  constexpr T kInfinity = kSingle ? T(__builtin_inff()) : T(__builtin_inf());
  constexpr T kEpsilon = kSingle ? T(__FLT_EPSILON__) : T(__DBL_EPSILON__);
  Vector most{};
  Mask finite = ~Mask{};
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const Vector size = L::magnitude(a[i * n + j]);
      finite &= size < Vector{} + kInfinity;
      if (j <= i) most = size > most ? size : most;
    }
  const Vector unit = unit_of<T>(most);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      a[i * n + j] = finite ? a[i * n + j] / unit : Vector{};
      if (v != nullptr) v[i * n + j] = Vector{} + T(i == j ? 1 : 0);
    }
  const Vector negligible = Vector{} + kEpsilon / 8;
  const bool converges = JacobiSweeps<T>{a, v, n}.run(negligible);
  for (std::int64_t i = 0; i < n; ++i) w[i] = a[i * n + i];
  for (std::int64_t i = 0; i + 1 < n; ++i)
    for (std::int64_t j = i + 1; j < n; ++j) {
      const Mask here = w[j] < w[i];
      if (!L::any(here)) continue;
      L::exchange(here, w[i], w[j]);
      if (v != nullptr)
        for (std::int64_t k = 0; k < n; ++k) L::exchange(here, v[k * n + i], v[k * n + j]);
    }
  const Vector none = Vector{} + kInfinity - kInfinity;
  for (std::int64_t i = 0; i < n; ++i) {
    w[i] = finite ? w[i] * unit : none;
    if (v != nullptr)
      for (std::int64_t j = 0; j < n; ++j) v[i * n + j] = finite ? v[i * n + j] : none;
  }
  if (converges) return 0;
  Mask left{};
  for (std::int64_t i = 1; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) left |= L::magnitude(a[i * n + j]) > negligible;
  return L::bits(left);
}

template <class T> constexpr SmallMatrixKernels<T> kSmallMatrixKernels{Lanes<T>::kCount, &eliminate<T>, &substitute<T>,
                                                                       &cholesky<T>, &eigen<T>};
constexpr SmallMatrices kKernels{kSmallMatrixKernels<float>, kSmallMatrixKernels<double>};

}  // namespace
}  // namespace fermata
