// The body of matmul_tiny_*.cpp.
//
// A row of the right side is one vector, loaded under a mask; a row of the result is written as a whole vector, and the
// next row over what is too much of it. Right sides that do not lie in rows are copied first, some at a time.
//
// Everything here has internal linkage and nothing of the standard library is called: a function shared with other
// files could run there with instructions the machine lacks.
#include <immintrin.h>

#include <cstdint>

#include "codegen_cpu/library/matmul_tiny_kernels.h"

namespace fermata {
namespace {

/// A vector of kLanes elements.
template <class T, int kLanes> struct Lanes;

template <> struct Lanes<float, 4> {
  __m128 v;
#if defined(__AVX512VL__)
  using Mask = __mmask8;
  static Mask mask_of(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static Lanes load(const float* from, Mask mask) { return {_mm_maskz_loadu_ps(mask, from)}; }
#else
  using Mask = __m128i;
  static Mask mask_of(std::int64_t n) {
    return _mm_cmpgt_epi32(_mm_set1_epi32(static_cast<int>(n)), _mm_setr_epi32(0, 1, 2, 3));
  }
  static Lanes load(const float* from, Mask mask) { return {_mm_maskload_ps(from, mask)}; }
#endif
  static Lanes splat(const float* from) { return {_mm_broadcast_ss(from)}; }
  static Lanes zero() { return {_mm_setzero_ps()}; }
  static Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm_fmadd_ps(a.v, b.v, c.v)}; }
  void store(float* to) const { _mm_storeu_ps(to, v); }
  Lanes half_sums() const { return *this; }
  /// The sums by halves of four vectors.
  static Lanes sums(Lanes a, Lanes b, Lanes c, Lanes d) {
    _MM_TRANSPOSE4_PS(a.v, b.v, c.v, d.v);
    return {_mm_add_ps(_mm_add_ps(a.v, c.v), _mm_add_ps(b.v, d.v))};
  }
};

template <> struct Lanes<float, 8> {
  __m256 v;
#if defined(__AVX512VL__)
  using Mask = __mmask8;
  static Mask mask_of(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static Lanes load(const float* from, Mask mask) { return {_mm256_maskz_loadu_ps(mask, from)}; }
#else
  using Mask = __m256i;
  static Mask mask_of(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Lanes load(const float* from, Mask mask) { return {_mm256_maskload_ps(from, mask)}; }
#endif
  static Lanes splat(const float* from) { return {_mm256_broadcast_ss(from)}; }
  static Lanes zero() { return {_mm256_setzero_ps()}; }
  static Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  void store(float* to) const { _mm256_storeu_ps(to, v); }
  Lanes<float, 4> half_sums() const { return {_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1))}; }
};

template <> struct Lanes<double, 4> {
  __m256d v;
#if defined(__AVX512VL__)
  using Mask = __mmask8;
  static Mask mask_of(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static Lanes load(const double* from, Mask mask) { return {_mm256_maskz_loadu_pd(mask, from)}; }
#else
  using Mask = __m256i;
  static Mask mask_of(std::int64_t n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Lanes load(const double* from, Mask mask) { return {_mm256_maskload_pd(from, mask)}; }
#endif
  static Lanes splat(const double* from) { return {_mm256_broadcast_sd(from)}; }
  static Lanes zero() { return {_mm256_setzero_pd()}; }
  static Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
  void store(double* to) const { _mm256_storeu_pd(to, v); }
  Lanes half_sums() const { return *this; }
  static Lanes sums(Lanes a, Lanes b, Lanes c, Lanes d) {
    const __m256d ab_even = _mm256_unpacklo_pd(a.v, b.v), ab_odd = _mm256_unpackhi_pd(a.v, b.v);  // lanes 0, 2; 1, 3
    const __m256d cd_even = _mm256_unpacklo_pd(c.v, d.v), cd_odd = _mm256_unpackhi_pd(c.v, d.v);
    const __m256d even = _mm256_add_pd(_mm256_permute2f128_pd(ab_even, cd_even, 0x20),
                                       _mm256_permute2f128_pd(ab_even, cd_even, 0x31)),
                  odd = _mm256_add_pd(_mm256_permute2f128_pd(ab_odd, cd_odd, 0x20),
                                      _mm256_permute2f128_pd(ab_odd, cd_odd, 0x31));
    return {_mm256_add_pd(even, odd)};
  }
};

template <> struct Lanes<double, 8> {
#if defined(__AVX512F__)
  __m512d v;
  using Mask = __mmask8;
  static Mask mask_of(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static Lanes load(const double* from, Mask mask) { return {_mm512_maskz_loadu_pd(mask, from)}; }
  static Lanes splat(const double* from) { return {_mm512_set1_pd(*from)}; }
  static Lanes zero() { return {_mm512_setzero_pd()}; }
  static Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
  void store(double* to) const { _mm512_storeu_pd(to, v); }
  Lanes<double, 4> half_sums() const {
    return {_mm256_add_pd(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7))};
  }
#else
  __m256d low, high;
  struct Mask {
    __m256i low, high;
  };
  static Mask mask_of(std::int64_t n) { return {Lanes<double, 4>::mask_of(n), Lanes<double, 4>::mask_of(n - 4)}; }
  static Lanes load(const double* from, Mask mask) {
    return {_mm256_maskload_pd(from, mask.low), _mm256_maskload_pd(from + 4, mask.high)};
  }
  static Lanes splat(const double* from) { return {_mm256_broadcast_sd(from), _mm256_broadcast_sd(from)}; }
  static Lanes zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
  static Lanes fused(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)};
  }
  void store(double* to) const { _mm256_storeu_pd(to, low), _mm256_storeu_pd(to + 4, high); }
  Lanes<double, 4> half_sums() const { return {_mm256_add_pd(low, high)}; }
#endif
};

/// Writes the first n lanes; all of them where what follows may be overwritten.
template <class T, int kLanes> inline void put(Lanes<T, kLanes> lanes, T* to, std::int64_t n, const T* end) {
  if (end - to >= kLanes) return lanes.store(to);
  T all[kLanes];
  lanes.store(all);
  for (std::int64_t j = 0; j < n; ++j) to[j] = all[j];
}

template <class T, int kLanes, int kDepth> void multiply_in_order(const TinyProducts& t) {
  using V = Lanes<T, kLanes>;
  const typename V::Mask mask = V::mask_of(t.n);
  const T *lhs = static_cast<const T*>(t.lhs), *rhs = static_cast<const T*>(t.rhs);
  T* out = static_cast<T*>(t.out);
  const T* const end = static_cast<const T*>(t.end);
  for (std::int64_t b = 0; b < t.count; ++b, lhs += t.lhs_batch, rhs += t.rhs_batch) {
    V rows[kDepth];
#pragma GCC unroll 8
    for (int p = 0; p < kDepth; ++p) rows[p] = V::load(rhs + p * t.rhs_k, mask);
    const T* left = lhs;
    for (std::int64_t i = 0; i < t.m; ++i, left += t.lhs_row, out += t.n) {
      V sum = V::zero();
#pragma GCC unroll 8
      for (int p = 0; p < kDepth; ++p) sum = V::fused(V::splat(left + p * t.lhs_k), rows[p], sum);
      put<T, kLanes>(sum, out, t.n, end);
    }
  }
}

template <class T, int kLanes> void multiply_rows(const TinyProducts& t) {
  switch (t.k) {
    case 1: return multiply_in_order<T, kLanes, 1>(t);
    case 2: return multiply_in_order<T, kLanes, 2>(t);
    case 3: return multiply_in_order<T, kLanes, 3>(t);
    case 4: return multiply_in_order<T, kLanes, 4>(t);
    case 5: return multiply_in_order<T, kLanes, 5>(t);
    case 6: return multiply_in_order<T, kLanes, 6>(t);
    case 7: return multiply_in_order<T, kLanes, 7>(t);
    default: return multiply_in_order<T, kLanes, 8>(t);
  }
}

/// Right sides that are copied together: their copies stay in the first-level cache.
constexpr std::int64_t kTogether = 16;

template <class T, int kLanes> void multiply_in_order(TinyProducts t) {
  if (t.rhs_column == 1 || t.n == 1) return multiply_rows<T, kLanes>(t);
  T copies[kTogether * kTinyMost * kLanes];
  const std::int64_t matrix = t.k * kLanes;
  for (std::int64_t first = 0; first < t.count; first += kTogether) {
    TinyProducts some = t;
    some.count = t.count - first < kTogether ? t.count - first : kTogether;
    for (std::int64_t b = 0; b < some.count; ++b) {
      const T* const from = static_cast<const T*>(t.rhs) + (first + b) * t.rhs_batch;
      T* const to = copies + b * matrix;
      for (std::int64_t j = 0; j < t.n; ++j)
        for (std::int64_t p = 0; p < t.k; ++p) to[p * kLanes + j] = from[p * t.rhs_k + j * t.rhs_column];
    }
    some.lhs = static_cast<const T*>(t.lhs) + first * t.lhs_batch;
    some.rhs = copies, some.rhs_batch = matrix, some.rhs_k = kLanes, some.rhs_column = 1;
    some.out = static_cast<T*>(t.out) + first * t.m * t.n;
    multiply_rows<T, kLanes>(some);
  }
}

template <class T> void multiply_in_order(const TinyProducts& t) {
  if (t.n <= 4)
    multiply_in_order<T, 4>(t);
  else
    multiply_in_order<T, 8>(t);
}

/// The first k elements of a line, by lanes.
template <class T, int kLanes>
inline Lanes<T, kLanes> line(const T* from, std::int64_t stride, std::int64_t k, typename Lanes<T, kLanes>::Mask mask) {
  using V = Lanes<T, kLanes>;
  if (stride == 1) return V::load(from, mask);
  T dense[kLanes];
  for (std::int64_t p = 0; p < k; ++p) dense[p] = from[p * stride];
  return V::load(dense, mask);
}

template <class T, int kLanes> void multiply_by_halves(const TinyProducts& t) {
  using V = Lanes<T, kLanes>;
  const typename V::Mask mask = V::mask_of(t.k);
  const T *lhs = static_cast<const T*>(t.lhs), *rhs = static_cast<const T*>(t.rhs);
  T* out = static_cast<T*>(t.out);
  const T* const end = static_cast<const T*>(t.end);
  for (std::int64_t b = 0; b < t.count; ++b, lhs += t.lhs_batch, rhs += t.rhs_batch, out += t.m) {
    const V x = line<T, kLanes>(rhs, t.rhs_k, t.k, mask);
    for (std::int64_t i = 0; i < t.m; i += 4) {
      Lanes<T, 4> products[4];
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < 4; ++j) {
        const std::int64_t row = i + j < t.m ? i + j : t.m - 1;
        const V left = line<T, kLanes>(lhs + row * t.lhs_row, t.lhs_k, t.k, mask);
        products[j] = V::fused(left, x, V::zero()).half_sums();
      }
      const std::int64_t n = t.m - i < 4 ? t.m - i : 4;
      put<T, 4>(Lanes<T, 4>::sums(products[0], products[1], products[2], products[3]), out + i, n, end);
    }
  }
}

template <class T> void multiply_by_halves(const TinyProducts& t) {
  if (t.k <= 4)
    multiply_by_halves<T, 4>(t);
  else
    multiply_by_halves<T, 8>(t);
}

constexpr TinyKernels kTinyOfThisFile{multiply_in_order<float>, multiply_in_order<double>, multiply_by_halves<float>,
                                      multiply_by_halves<double>};

}  // namespace
}  // namespace fermata
