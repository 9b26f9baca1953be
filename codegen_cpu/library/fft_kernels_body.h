// The body of fft_kernels_*.cpp. The includer defines FERMATA_VECTOR_BYTES. Everything here has internal linkage and
// nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>
#include <utility>

#include "codegen_cpu/library/fft_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

constexpr int kLanes = FERMATA_VECTOR_BYTES / 4;
typedef float Vector __attribute__((vector_size(FERMATA_VECTOR_BYTES)));

inline Vector load(const float* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
inline void store(float* to, Vector v) { __builtin_memcpy(to, &v, sizeof(v)); }
inline Vector splat(float x) { return x - Vector{}; }

struct Complex {
  Vector re, im;
};
inline Complex load(ComplexLine x, std::int64_t at) { return {load(x.real + at), load(x.imaginary + at)}; }
inline void store(ComplexLine y, std::int64_t at, Complex z) {
  store(y.real + at, z.re), store(y.imaginary + at, z.im);
}
inline Complex sum(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex difference(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
inline Complex product(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

struct Quarter {
  Complex at[4];
};
/// The transform of four elements, turned by the powers of a root.
inline Quarter butterfly(const Quarter& x, Complex w1, Complex w2, Complex w3) {
  const Complex even = sum(x.at[0], x.at[2]), odd = difference(x.at[0], x.at[2]), other = sum(x.at[1], x.at[3]),
                rest = difference(x.at[1], x.at[3]);
  const Complex turned{-rest.im, rest.re};  // times i
  return {{sum(even, other), product(difference(odd, turned), w1), product(difference(even, other), w2),
           product(sum(odd, turned), w3)}};
}

/// Interleaves groups of kUnit lanes of two vectors: of their first halves, or their second ones.
template <int kUnit, bool kUpper, int... lane>
inline Vector by_turns(Vector a, Vector b, std::integer_sequence<int, lane...>) {
  constexpr int kFirst = kUpper ? kLanes / kUnit / 2 : 0;
  return __builtin_shufflevector(a, b,
                                 ((lane / kUnit % 2) * kLanes + (lane / kUnit / 2 + kFirst) * kUnit + lane % kUnit)...);
}
template <int kUnit, bool kUpper> inline Vector by_turns(Vector a, Vector b) {
  return by_turns<kUnit, kUpper>(a, b, std::make_integer_sequence<int, kLanes>{});
}

/// Four vectors whose groups of kUnit lanes are interleaved in memory.
template <int kUnit> inline void store_by_turns(float* to, Vector a, Vector b, Vector c, Vector d) {
  if constexpr (kUnit == kLanes) {
    store(to, a), store(to + kLanes, b), store(to + 2 * kLanes, c), store(to + 3 * kLanes, d);
  } else {
    const Vector e = by_turns<kUnit, false>(a, c), f = by_turns<kUnit, true>(a, c);
    const Vector g = by_turns<kUnit, false>(b, d), h = by_turns<kUnit, true>(b, d);
    store(to, by_turns<kUnit, false>(e, g)), store(to + kLanes, by_turns<kUnit, true>(e, g));
    store(to + 2 * kLanes, by_turns<kUnit, false>(f, h)), store(to + 3 * kLanes, by_turns<kUnit, true>(f, h));
  }
}

/// Elements lie less than a vector apart: vectors go over roots as well.
template <int kUnit> void narrow_stage(const float* roots, std::int64_t quarter, ComplexLine x, ComplexLine y) {
  for (std::int64_t j = 0; j < quarter; j += kLanes) {
    Quarter q;
    Complex w[3];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) q.at[k] = load(x, j + k * quarter);
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) w[k] = {load(roots + 2 * k * quarter + j), load(roots + (2 * k + 1) * quarter + j)};
    q = butterfly(q, w[0], w[1], w[2]);
    store_by_turns<kUnit>(y.real + 4 * j, q.at[0].re, q.at[1].re, q.at[2].re, q.at[3].re);
    store_by_turns<kUnit>(y.imaginary + 4 * j, q.at[0].im, q.at[1].im, q.at[2].im, q.at[3].im);
  }
}

void wide_stage(const FftStage& stage, std::int64_t quarter, ComplexLine x, ComplexLine y) {
  for (std::int64_t p = 0; p < stage.left / 4; ++p) {
    const float* const w = stage.roots + 6 * p;
    const Complex w1{splat(w[0]), splat(w[1])}, w2{splat(w[2]), splat(w[3])}, w3{splat(w[4]), splat(w[5])};
    for (std::int64_t i = 0; i < stage.stride; i += kLanes) {
      Quarter q;
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) q.at[k] = load(x, stage.stride * p + i + k * quarter);
      q = butterfly(q, w1, w2, w3);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) store(y, stage.stride * (4 * p + k) + i, q.at[k]);
    }
  }
}

void run_stage(const FftStage& stage, std::int64_t n, ComplexLine x, ComplexLine y) {
  if (stage.left == 2) {
    for (std::int64_t i = 0; i < n / 2; i += kLanes) {
      const Complex a = load(x, i), b = load(x, n / 2 + i);
      store(y, i, sum(a, b)), store(y, n / 2 + i, difference(a, b));
    }
  } else if (stage.stride == 1) {
    narrow_stage<1>(stage.roots, n / 4, x, y);
  } else if (stage.stride == 4) {
    narrow_stage<4>(stage.roots, n / 4, x, y);
  } else {
    wide_stage(stage, n / 4, x, y);
  }
}

void split_pairs(const float* pairs, std::int64_t n, ComplexLine to) {
  for (std::int64_t i = 0; i < n; ++i) to.real[i] = pairs[2 * i], to.imaginary[i] = pairs[2 * i + 1];
}
void join_pairs(ComplexLine from, std::int64_t n, float* pairs) {
  for (std::int64_t i = 0; i < n; ++i) pairs[2 * i] = from.real[i], pairs[2 * i + 1] = from.imaginary[i];
}

void to_real(ComplexLine z, std::int64_t n, ComplexLine roots, float* pairs) {
  pairs[0] = z.real[0] + z.imaginary[0], pairs[1] = 0;
  pairs[2 * n] = z.real[0] - z.imaginary[0], pairs[2 * n + 1] = 0;
  for (std::int64_t k = 1; k < n; ++k) {
    const float even_re = 0.5f * (z.real[k] + z.real[n - k]), even_im = 0.5f * (z.imaginary[k] - z.imaginary[n - k]);
    const float odd_re = 0.5f * (z.imaginary[k] + z.imaginary[n - k]), odd_im = 0.5f * (z.real[n - k] - z.real[k]);
    pairs[2 * k] = even_re + (roots.real[k] * odd_re - roots.imaginary[k] * odd_im);
    pairs[2 * k + 1] = even_im + (roots.real[k] * odd_im + roots.imaginary[k] * odd_re);
  }
}

void from_real(const float* pairs, std::int64_t n, ComplexLine roots, ComplexLine z) {
  z.real[0] = pairs[0] + pairs[2 * n], z.imaginary[0] = pairs[0] - pairs[2 * n];
  for (std::int64_t k = 1; k < n; ++k) {
    const float re = pairs[2 * k], im = pairs[2 * k + 1], other_re = pairs[2 * (n - k)],
                other_im = pairs[2 * (n - k) + 1];
    const float turned_re = re - other_re, turned_im = im + other_im;
    const float odd_re = roots.real[k] * turned_re + roots.imaginary[k] * turned_im,
                odd_im = roots.real[k] * turned_im - roots.imaginary[k] * turned_re;
    z.real[k] = (re + other_re) - odd_im, z.imaginary[k] = (im - other_im) + odd_re;
  }
}

constexpr FftKernels kKernels{&run_stage, &split_pairs, &join_pairs, &to_real, &from_real};

}  // namespace
}  // namespace fermata
