// The body of fft_lanes_*.cpp. The includer defines FERMATA_VECTOR_BYTES. Everything here has internal linkage and
// nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>
#include <utility>

#include "codegen_cpu/irregular/transpose_in_registers.h"
#include "codegen_cpu/library/fft_lanes.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

template <class T> struct VectorOf;
template <> struct VectorOf<float> { typedef float type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <> struct VectorOf<double> { typedef double type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <class T> using Vector = typename VectorOf<T>::type;
template <class T> constexpr std::int64_t kLanes = FERMATA_VECTOR_BYTES / static_cast<std::int64_t>(sizeof(T));

template <class T> inline Vector<T> load(const T* from) {
  Vector<T> v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
template <class T> inline void store(T* to, Vector<T> v) { __builtin_memcpy(to, &v, sizeof(v)); }
template <class T> inline Vector<T> splat(T x) { return x - Vector<T>{}; }

template <class T> struct Complex { Vector<T> re, im; };
template <class T> inline Complex<T> operator+(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> inline Complex<T> operator-(Complex<T> a, Complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> inline Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T> inline Complex<T> operator*(T a, Complex<T> b) { return {splat(a) * b.re, splat(a) * b.im}; }
template <class T> inline Complex<T> turned_back(Complex<T> z) { return {z.im, -z.re}; }  // times -i
template <class T> inline Complex<T> pair_of(const T* pair) { return {splat(pair[0]), splat(pair[1])}; }

template <class T> inline Complex<T> element(LaneBuffer<T> x, std::int64_t at) {
  return {load(x.real + 2 * kLanes<T> * at), load(x.imaginary + 2 * kLanes<T> * at)};
}
template <class T> inline void put(LaneBuffer<T> y, std::int64_t at, Complex<T> z) {
  store(y.real + 2 * kLanes<T> * at, z.re), store(y.imaginary + 2 * kLanes<T> * at, z.im);
}
template <class T> inline LaneBuffer<T> buffer(const T* at) {
  T* const first = const_cast<T*>(at);  // read only where `at` is
  return {first, first + kLanes<T>};
}

// ---- Stages

template <class T> inline void butterfly(Complex<T> (&x)[2], const T*) {
  const Complex<T> a = x[0] + x[1], b = x[0] - x[1];
  x[0] = a, x[1] = b;
}
template <class T> inline void butterfly(Complex<T> (&x)[4], const T*) {
  const Complex<T> even = x[0] + x[2], odd = x[0] - x[2], other = x[1] + x[3], rest = turned_back(x[1] - x[3]);
  x[0] = even + other, x[1] = odd + rest, x[2] = even - other, x[3] = odd - rest;
}
/// Of elements k and n - k their sum and their difference, which meet cosines and sines.
template <class T, int kRadix> inline void odd_butterfly(Complex<T>* x, int radix, const T* circle) {
  constexpr int kMostHalf = (kRadix == 0 ? static_cast<int>(kLargestFftFactor) : kRadix) / 2;
  const int size = kRadix == 0 ? radix : kRadix, half = size / 2;
  Complex<T> sum[kMostHalf], difference[kMostHalf], first = x[0];
#pragma GCC unroll 8
  for (int k = 1; k <= half; ++k) {
    sum[k - 1] = x[k] + x[size - k], difference[k - 1] = x[k] - x[size - k];
    first = first + sum[k - 1];
  }
#pragma GCC unroll 8
  for (int j = 1; j <= half; ++j) {
    Complex<T> even = x[0], odd{};
#pragma GCC unroll 8
    for (int k = 1; k <= half; ++k) {
      const T* const root = circle + 2 * (j * k % size);
      even = even + root[0] * sum[k - 1], odd = odd - root[1] * difference[k - 1];
    }
    // The loops read x[0] and what was added up, so that results may take the places of elements.
    x[j] = even + turned_back(odd), x[size - j] = even - turned_back(odd);
  }
  x[0] = first;
}
template <class T> inline void butterfly(Complex<T> (&x)[3], const T* circle) { odd_butterfly<T, 3>(x, 3, circle); }
template <class T> inline void butterfly(Complex<T> (&x)[5], const T* circle) { odd_butterfly<T, 5>(x, 5, circle); }
template <class T> inline void butterfly(Complex<T> (&x)[7], const T* circle) { odd_butterfly<T, 7>(x, 7, circle); }

template <class T, int kRadix, bool kTurns>
inline void run_block(const LaneStage<T>& s, std::int64_t quarter, std::int64_t p, LaneBuffer<T> x, LaneBuffer<T> y) {
  const T* const roots = s.roots + 2 * (kRadix - 1) * p;
  for (std::int64_t i = 0; i < s.stride; ++i) {
    Complex<T> z[kRadix];
#pragma GCC unroll 8
    for (int k = 0; k < kRadix; ++k) z[k] = element(x, s.stride * p + i + k * quarter);
    butterfly(z, s.circle);
    put(y, s.stride * kRadix * p + i, z[0]);
#pragma GCC unroll 8
    for (int k = 1; k < kRadix; ++k)
      put(y, s.stride * (kRadix * p + k) + i, kTurns ? z[k] * pair_of(roots + 2 * (k - 1)) : z[k]);
  }
}
template <class T, int kRadix> void run_radix(const LaneStage<T>& s, std::int64_t n, LaneBuffer<T> x, LaneBuffer<T> y) {
  run_block<T, kRadix, false>(s, n / kRadix, 0, x, y);
  for (std::int64_t p = 1; p < s.left / kRadix; ++p) run_block<T, kRadix, true>(s, n / kRadix, p, x, y);
}
/// Factors that are rare.
template <class T> void run_any_radix(const LaneStage<T>& s, std::int64_t n, LaneBuffer<T> x, LaneBuffer<T> y) {
  const auto radix = static_cast<int>(s.radix);
  for (std::int64_t p = 0; p < s.left / radix; ++p)
    for (std::int64_t i = 0; i < s.stride; ++i) {
      Complex<T> z[kLargestFftFactor];
      z[0] = element(x, s.stride * p + i);
      for (int k = 1; k < radix; ++k) z[k] = element(x, s.stride * p + i + k * (n / radix));
      odd_butterfly<T, 0>(z, radix, s.circle);
      put(y, s.stride * radix * p + i, z[0]);
      const T* const roots = s.roots + 2 * (radix - 1) * p;
      for (int k = 1; k < radix; ++k)
        put(y, s.stride * (radix * p + k) + i, p == 0 ? z[k] : z[k] * pair_of(roots + 2 * (k - 1)));
    }
}
template <class T> void run_stage(const LaneStage<T>& s, std::int64_t n, LaneBuffer<T> x, LaneBuffer<T> y) {
  switch (s.radix) {
    case 2: return run_radix<T, 2>(s, n, x, y);
    case 3: return run_radix<T, 3>(s, n, x, y);
    case 4: return run_radix<T, 4>(s, n, x, y);
    case 5: return run_radix<T, 5>(s, n, x, y);
    case 7: return run_radix<T, 7>(s, n, x, y);
    default: return run_any_radix(s, n, x, y);
  }
}

template <class T> void multiply(LaneBuffer<T> x, const T* numbers, std::int64_t n, LaneBuffer<T> y) {
  for (std::int64_t k = 0; k < n; ++k) put(y, k, element(x, k) * pair_of(numbers + 2 * k));
}
template <class T> void multiply_lanes(LaneBuffer<T> x, const T* numbers, std::int64_t n, LaneBuffer<T> y) {
  for (std::int64_t k = 0; k < n; ++k) put(y, k, element(x, k) * element(buffer(numbers), k));
}

// ---- Real lines

template <class T> void to_real(const T* from, std::int64_t n, const T* roots, T* to) {
  const LaneBuffer<T> x = buffer(from), y = buffer(to);
  const Complex<T> first = element(x, 0);
  put(y, 0, {first.re + first.im, Vector<T>{}}), put(y, n, {first.re - first.im, Vector<T>{}});
  const T half = 0.5;
  for (std::int64_t k = 1; k < n; ++k) {
    const Complex<T> a = element(x, k), b = element(x, n - k);
    const Complex<T> even{splat(half) * (a.re + b.re), splat(half) * (a.im - b.im)},
        odd{splat(half) * (a.im + b.im), splat(half) * (b.re - a.re)};
    put(y, k, even + pair_of(roots + 2 * k) * odd);
  }
}
template <class T> void from_real(const T* from, std::int64_t n, const T* roots, T* to) {
  const LaneBuffer<T> y = buffer(from), z = buffer(to);
  const Vector<T> first = element(y, 0).re, last = element(y, n).re;
  put(z, 0, {first + last, first - last});
  for (std::int64_t k = 1; k < n; ++k) {
    const Complex<T> a = element(y, k), b = element(y, n - k), root = pair_of(roots + 2 * k);
    const Complex<T> odd = Complex<T>{a.re - b.re, a.im + b.im} * Complex<T>{root.re, -root.im};
    put(z, k, {(a.re + b.re) - odd.im, (a.im - b.im) + odd.re});
  }
}

// ---- Real lines of pairs. Vectors hold pairs k, k + 1, ..., and their mirror images n - k, n - k - 1, ...

template <class T, int... kLane> inline Vector<T> swapped(Vector<T> v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane ^ 1)...);
}
template <class T, int... kLane> inline Vector<T> mirrored(Vector<T> v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, ((static_cast<int>(sizeof...(kLane)) - 1 - kLane) ^ 1)...);
}
template <class T, int... kLane> inline Vector<T> doubled(Vector<T> v, int, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane & ~1)...);
}
template <class T, int... kLane> inline Vector<T> doubled(Vector<T> v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane | 1)...);
}
template <class T> struct Pairs {
  static constexpr std::make_integer_sequence<int, static_cast<int>(kLanes<T>)> kNumbers{};
  static constexpr std::int64_t kCount = kLanes<T> / 2;
  Vector<T> v;
  static Pairs at(const T* from, std::int64_t k) { return {load(from + 2 * k)}; }
  static Pairs before(const T* from, std::int64_t k) {
    return {mirrored<T>(load(from + 2 * (k + 1 - kCount)), kNumbers)};
  }
  Pairs conjugate() const { return {signs(1, -1) * v}; }
  Pairs turned() const { return {signs(-1, 1) * swapped<T>(v, kNumbers)}; }  // times i
  friend Pairs operator+(Pairs a, Pairs b) { return {a.v + b.v}; }
  friend Pairs operator-(Pairs a, Pairs b) { return {a.v - b.v}; }
  friend Pairs operator*(Pairs a, Pairs b) {
    return {doubled<T>(a.v, 0, kNumbers) * b.v + doubled<T>(a.v, kNumbers) * b.turned().v};
  }
  static Vector<T> signs(T even, T odd) {
    Vector<T> v;
    for (std::int64_t l = 0; l < kLanes<T>; ++l) v[l] = l % 2 == 0 ? even : odd;
    return v;
  }
};
/// Calls step(vectors of pairs k and n - k, of roots, k) for k in [1, n); the last ones again where none are left.
template <class T, class F> inline void for_mirrored(const T* from, std::int64_t n, const T* roots, F&& step) {
  using P = Pairs<T>;
  for (std::int64_t k = 1; k < n; k += P::kCount) {
    const std::int64_t at = k + P::kCount <= n ? k : n - P::kCount;
    step(P::at(from, at), P::before(from, n - at), P::at(roots, at), at);
  }
}
template <class T> void line_to_real(const T* z, std::int64_t n, const T* roots, T* y) {
  for_mirrored(z, n, roots, [&](Pairs<T> a, Pairs<T> b, Pairs<T> root, std::int64_t k) {
    const Pairs<T> half{splat(T(0.5))}, even{half.v * (a + b.conjugate()).v},
        odd{half.v * (b.conjugate() - a).turned().v};
    store(y + 2 * k, (even + root * odd).v);
  });
  y[0] = z[0] + z[1], y[1] = 0;
  y[2 * n] = z[0] - z[1], y[2 * n + 1] = 0;
}
template <class T> void line_from_real(const T* y, std::int64_t n, const T* roots, T* z) {
  for_mirrored(y, n, roots, [&](Pairs<T> a, Pairs<T> b, Pairs<T> root, std::int64_t k) {
    const Pairs<T> odd = root.conjugate() * (a - b.conjugate());
    store(z + 2 * k, (a + b.conjugate() + odd.turned()).v);
  });
  z[0] = y[0] + y[2 * n], z[1] = y[0] - y[2 * n];
}

// ---- Lines in memory

template <class T> bool are_adjacent(const LaneLines& lines) {
  for (std::int64_t l = 1; l < kLanes<T>; ++l)
    if (lines.starts[l] != lines.starts[0] + l) return false;
  return lines.lines == kLanes<T>;
}

template <class T> inline void load_element(const T* from, const LaneLines& lines, std::int64_t at, T* to) {
  for (std::int64_t l = 0; l < kLanes<T>; ++l) to[l] = from[lines.starts[l] * lines.width + at];
}
/// Numbers of a line lie side by side: squares of vectors are turned.
template <class T> void load_dense(const T* from, const LaneLines& lines, T* to, std::int64_t row) {
  const std::int64_t numbers = lines.count * lines.width, whole = numbers / kLanes<T> * kLanes<T>;
  for (std::int64_t i = 0; i < whole; i += kLanes<T>) {
    Vector<T> square[kLanes<T>];
#pragma GCC unroll 16
    for (std::int64_t l = 0; l < kLanes<T>; ++l) square[l] = load(from + lines.starts[l] * lines.width + i);
    transpose_in_registers(square);
#pragma GCC unroll 16
    for (std::int64_t l = 0; l < kLanes<T>; ++l) store(to + (i + l) * row * kLanes<T>, square[l]);
  }
  for (std::int64_t i = whole; i < numbers; ++i) load_element(from, lines, i, to + i * row * kLanes<T>);
}
template <class T> void load_lines(const T* from, const LaneLines& lines, T* to, std::int64_t row) {
  if (lines.stride == 1) return load_dense(from, lines, to, row);
  const bool adjacent = are_adjacent<T>(lines);
  for (std::int64_t k = 0; k < lines.count; ++k) {
    const T* const first = from + (lines.starts[0] + k * lines.stride) * lines.width;
    T* const vector = to + k * lines.width * row * kLanes<T>;
    if (adjacent && lines.width == 2)
      for (std::int64_t l = 0; l < kLanes<T>; ++l)
        vector[l] = first[2 * l], vector[row * kLanes<T> + l] = first[2 * l + 1];
    else if (adjacent)
      store(vector, load(first));
    else
      for (std::int64_t c = 0; c < lines.width; ++c)
        load_element(from, lines, k * lines.stride * lines.width + c, vector + c * row * kLanes<T>);
  }
}

template <class T> inline void store_element(const T* from, T* to, const LaneLines& lines, std::int64_t at) {
  for (std::int64_t l = 0; l < lines.lines; ++l) to[lines.starts[l] * lines.width + at] = from[l];
}
template <class T> void store_dense(const T* from, std::int64_t row, T* to, const LaneLines& lines) {
  const std::int64_t numbers = lines.count * lines.width, whole = numbers / kLanes<T> * kLanes<T>;
  for (std::int64_t i = 0; i < whole; i += kLanes<T>) {
    Vector<T> square[kLanes<T>];
#pragma GCC unroll 16
    for (std::int64_t l = 0; l < kLanes<T>; ++l) square[l] = load(from + (i + l) * row * kLanes<T>);
    transpose_in_registers(square);
#pragma GCC unroll 16
    for (std::int64_t l = 0; l < kLanes<T>; ++l)
      if (l < lines.lines) store(to + lines.starts[l] * lines.width + i, square[l]);
  }
  for (std::int64_t i = whole; i < numbers; ++i) store_element(from + i * row * kLanes<T>, to, lines, i);
}
template <class T> void store_lines(const T* from, std::int64_t row, T* to, const LaneLines& lines) {
  if (lines.stride == 1) return store_dense(from, row, to, lines);
  const bool adjacent = are_adjacent<T>(lines);
  for (std::int64_t k = 0; k < lines.count; ++k) {
    T* const first = to + (lines.starts[0] + k * lines.stride) * lines.width;
    const T* const vector = from + k * lines.width * row * kLanes<T>;
    if (adjacent && lines.width == 2)
      for (std::int64_t l = 0; l < kLanes<T>; ++l)
        first[2 * l] = vector[l], first[2 * l + 1] = vector[row * kLanes<T> + l];
    else if (adjacent)
      store(first, load(vector));
    else
      for (std::int64_t c = 0; c < lines.width; ++c)
        store_element(vector + c * row * kLanes<T>, to, lines, k * lines.stride * lines.width + c);
  }
}

// ---- Cosine transforms: what is before and after a Fourier transform. V is a vector, or a number for a line alone.

/// Rows of V.
template <class T, class V> struct Rows {
  static constexpr std::int64_t kWidth = sizeof(V) / sizeof(T);
  static V number(const T* x, std::int64_t at) {
    V v;
    __builtin_memcpy(&v, x + at * kWidth, sizeof(V));
    return v;
  }
  static void put(T* x, std::int64_t at, V v) { __builtin_memcpy(x + at * kWidth, &v, sizeof(V)); }
  static void put(T* z, std::int64_t at, V re, V im) { put(z, 2 * at, re), put(z, 2 * at + 1, im); }
  /// `pair` times re + i im.
  static void put_turned(T* z, std::int64_t at, const T* pair, V re, V im) {
    put(z, at, re * pair[0] - im * pair[1], re * pair[1] + im * pair[0]);
  }
};

/// x_0, x_2, ... and then ..., x_3, x_1.
template <class T, class V> void order_evenly(const CosineLine<T>& c, const T* x, T* z) {
  using R = Rows<T, V>;
  const std::int64_t evens = (c.n + 1) / 2;
  for (std::int64_t i = 0; i < c.n; ++i) {
    const V v = R::number(x, i < evens ? 2 * i : 2 * (c.n - 1 - i) + 1);
    if (c.is_halved())
      R::put(z, i, v);
    else
      R::put(z, i, v, V{});
  }
}
template <class T, class V, class F>
void cosines_before(const CosineLine<T>& c, const T* x, T* other, T* z, F&& from_pairs) {
  using R = Rows<T, V>;
  const std::int64_t n = c.n;
  switch (c.type) {
    case 1:
      for (std::int64_t i = 0; i < n; ++i) R::put(z, i, R::number(x, i));
      for (std::int64_t i = 1; i + 1 < n; ++i) R::put(z, 2 * n - 2 - i, R::number(x, i));
      return;
    case 2: return order_evenly<T, V>(c, x, z);
    case 3: {
      T* const pairs = c.is_halved() ? other : z;
      R::put(pairs, 0, R::number(x, 0), V{});
      for (std::int64_t k = 1; k <= n / 2; ++k) {
        const T turn[] = {c.turns[2 * k], -c.turns[2 * k + 1]};
        R::put_turned(pairs, k, turn, R::number(x, k), -R::number(x, n - k));
      }
      if (c.is_halved()) return from_pairs(pairs, z);
      for (std::int64_t k = 1; k <= n / 2; ++k) R::put(z, n - k, R::number(z, 2 * k), -R::number(z, 2 * k + 1));
      return;
    }
    default:
      if (n % 2 == 0) {
        for (std::int64_t j = 0; j < n / 2; ++j)
          R::put_turned(z, j, c.turns + 2 * j, R::number(x, 2 * j), R::number(x, n - 1 - 2 * j));
        return;
      }
      for (std::int64_t j = 0; j < n; ++j) R::put_turned(z, j, c.turns + 2 * j, R::number(x, j), V{});
      for (std::int64_t j = n; j < 2 * n; ++j) R::put(z, j, V{}, V{});
  }
}
template <class T, class V, class F>
void cosines_after(const CosineLine<T>& c, const T* z, T* other, T* y, F&& to_pairs) {
  using R = Rows<T, V>;
  const std::int64_t n = c.n;
  const T* pairs = z;
  if (c.type <= 2 && c.is_halved()) to_pairs(z, other), pairs = other;
  const T two = 2;
  switch (c.type) {
    case 1:
      for (std::int64_t k = 0; k < n; ++k) R::put(y, k, R::number(pairs, 2 * k));
      return;
    case 2:
      R::put(y, 0, two * R::number(pairs, 0));
      for (std::int64_t k = 1; k <= n / 2; ++k) {
        const V re = two * R::number(pairs, 2 * k), im = two * R::number(pairs, 2 * k + 1);
        const T cosine = c.turns[2 * k], sine = -c.turns[2 * k + 1];
        R::put(y, n - k, re * sine - im * cosine);
        R::put(y, k, re * cosine + im * sine);
      }
      return;
    case 3: {
      const std::int64_t step = c.is_halved() ? 1 : 2;
      for (std::int64_t i = 0; i < n; ++i) R::put(y, i, R::number(z, (i % 2 == 0 ? i / 2 : n - 1 - i / 2) * step));
      return;
    }
    default: {
      const bool is_even = n % 2 == 0;
      for (std::int64_t k = 0; k < c.size / (is_even ? 1 : 2); ++k) {
        const T* const turn = c.turns_after + 2 * k;
        const V re = two * R::number(z, 2 * k), im = two * R::number(z, 2 * k + 1);
        R::put(y, is_even ? 2 * k : k, re * turn[0] - im * turn[1]);
        if (is_even) R::put(y, n - 1 - 2 * k, -(re * turn[1] + im * turn[0]));
      }
    }
  }
}
template <class T> void before_lanes(const CosineLine<T>& c, const T* x, T* other, T* z) {
  cosines_before<T, Vector<T>>(c, x, other, z, [&](const T* from, T* to) { from_real(from, c.size, c.roots, to); });
}
template <class T> void after_lanes(const CosineLine<T>& c, const T* z, T* other, T* y) {
  cosines_after<T, Vector<T>>(c, z, other, y, [&](const T* from, T* to) { to_real(from, c.size, c.roots, to); });
}
template <class T> void before_line(const CosineLine<T>& c, const T* x, T* other, T* z) {
  cosines_before<T, T>(c, x, other, z, [&](const T* from, T* to) { line_from_real(from, c.size, c.roots, to); });
}
template <class T> void after_line(const CosineLine<T>& c, const T* z, T* other, T* y) {
  cosines_after<T, T>(c, z, other, y, [&](const T* from, T* to) { line_to_real(from, c.size, c.roots, to); });
}

template <class T> constexpr FftLanes<T> kLaneTable{kLanes<T>,
                                                    &load_lines<T>,
                                                    &store_lines<T>,
                                                    &run_stage<T>,
                                                    &multiply<T>,
                                                    &multiply_lanes<T>,
                                                    &to_real<T>,
                                                    &from_real<T>,
                                                    &line_to_real<T>,
                                                    &line_from_real<T>,
                                                    {&before_lanes<T>, &after_lanes<T>},
                                                    {&before_line<T>, &after_line<T>}};
constexpr FftLaneKernels kKernels{kLaneTable<float>, kLaneTable<double>};

}  // namespace
}  // namespace fermata
