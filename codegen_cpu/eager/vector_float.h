// The operations of SIMD floats that the vector extensions lack: fma, square root, rounding, remainder; and mul_high of
// integers.
#pragma once

#include <cmath>

#include "codegen_cpu/eager/vector.h"
#include "ir/scalar_math/float_remainder.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fermata::eager::FERMATA_ISA {

template <class T, int N, int M> Vector<T, N, M> by_element(Vector<T, N, M> a, auto f) {
  return Vector<T, N, M>::by_lane(a, a, [f](T x, T) { return f(x); });
}

/// One instruction where registers of this width have it, else the C library lane by lane: the same bits.
template <class T, int N, int M>
requires std::is_floating_point_v<T> Vector<T, N, M> fma(Vector<T, N, M> a, Vector<T, N, M> b, Vector<T, N, M> c) {
  using V [[maybe_unused]] = Vector<T, N, M>;
#if defined(__AVX512F__)
  if constexpr (sizeof(a.raw) == 64) {
    if constexpr (sizeof(T) == 4)
      return V::of((Raw<T, N>)_mm512_fmadd_ps((__m512)a.raw, (__m512)b.raw, (__m512)c.raw));
    else
      return V::of((Raw<T, N>)_mm512_fmadd_pd((__m512d)a.raw, (__m512d)b.raw, (__m512d)c.raw));
  } else
#endif
#if defined(__FMA__)
      if constexpr (sizeof(a.raw) == 32) {
    if constexpr (sizeof(T) == 4)
      return V::of((Raw<T, N>)_mm256_fmadd_ps((__m256)a.raw, (__m256)b.raw, (__m256)c.raw));
    else
      return V::of((Raw<T, N>)_mm256_fmadd_pd((__m256d)a.raw, (__m256d)b.raw, (__m256d)c.raw));
  } else if constexpr (sizeof(a.raw) == 16) {
    if constexpr (sizeof(T) == 4)
      return V::of((Raw<T, N>)_mm_fmadd_ps((__m128)a.raw, (__m128)b.raw, (__m128)c.raw));
    else
      return V::of((Raw<T, N>)_mm_fmadd_pd((__m128d)a.raw, (__m128d)b.raw, (__m128d)c.raw));
  } else
#endif
  {
    T x[N], y[N], z[N];
    std::memcpy(x, &a.raw, sizeof x), std::memcpy(y, &b.raw, sizeof y), std::memcpy(z, &c.raw, sizeof z);
    for (int i = 0; i < N; ++i) x[i] = std::fma(x[i], y[i], z[i]);
    std::memcpy(&a.raw, x, sizeof x);
    return a;
  }
}

// One function per rounding: the intrinsics want the mode as a literal.
#if defined(__AVX512F__)
#define FERMATA_ROUND_512(mode)                                            \
  if constexpr (sizeof(a.raw) == 64) {                                     \
    if constexpr (sizeof(T) == 4)                                          \
      return V::of((Raw<T, N>)_mm512_roundscale_ps((__m512)a.raw, mode));  \
    else                                                                   \
      return V::of((Raw<T, N>)_mm512_roundscale_pd((__m512d)a.raw, mode)); \
  }
#else
#define FERMATA_ROUND_512(mode)
#endif
#if defined(__AVX__)
#define FERMATA_ROUND_256(mode)                                       \
  if constexpr (sizeof(a.raw) == 32) {                                \
    if constexpr (sizeof(T) == 4)                                     \
      return V::of((Raw<T, N>)_mm256_round_ps((__m256)a.raw, mode));  \
    else                                                              \
      return V::of((Raw<T, N>)_mm256_round_pd((__m256d)a.raw, mode)); \
  }
#else
#define FERMATA_ROUND_256(mode)
#endif
#if defined(__SSE4_1__)
#define FERMATA_ROUND_128(mode)                                    \
  if constexpr (sizeof(a.raw) == 16) {                             \
    if constexpr (sizeof(T) == 4)                                  \
      return V::of((Raw<T, N>)_mm_round_ps((__m128)a.raw, mode));  \
    else                                                           \
      return V::of((Raw<T, N>)_mm_round_pd((__m128d)a.raw, mode)); \
  }
#else
#define FERMATA_ROUND_128(mode)
#endif
#define FERMATA_ROUNDING(name, mode, scalar)                                     \
  template <class T, int N, int M>                                               \
  requires std::is_floating_point_v<T> Vector<T, N, M> name(Vector<T, N, M> a) { \
    using V = Vector<T, N, M>;                                                   \
    FERMATA_ROUND_512(mode)                                                      \
    FERMATA_ROUND_256(mode)                                                      \
    FERMATA_ROUND_128(mode)                                                      \
    return by_element(a, [](T x) { return scalar(x); });                         \
  }
FERMATA_ROUNDING(floor, 0x09, std::floor)
FERMATA_ROUNDING(ceil, 0x0a, std::ceil)
FERMATA_ROUNDING(trunc, 0x0b, std::trunc)
FERMATA_ROUNDING(rint, 0x08, std::nearbyint)
#undef FERMATA_ROUNDING
#undef FERMATA_ROUND_512
#undef FERMATA_ROUND_256
#undef FERMATA_ROUND_128

template <class T, int N, int M>
requires std::is_floating_point_v<T> Vector<T, N, M> sqrt(Vector<T, N, M> a) {
  using V [[maybe_unused]] = Vector<T, N, M>;
#if defined(__AVX512F__)
  if constexpr (sizeof(a.raw) == 64) {
    if constexpr (sizeof(T) == 4)
      return V::of((Raw<T, N>)_mm512_sqrt_ps((__m512)a.raw));
    else
      return V::of((Raw<T, N>)_mm512_sqrt_pd((__m512d)a.raw));
  } else
#endif
#if defined(__AVX__)
      if constexpr (sizeof(a.raw) == 32) {
    if constexpr (sizeof(T) == 4)
      return V::of((Raw<T, N>)_mm256_sqrt_ps((__m256)a.raw));
    else
      return V::of((Raw<T, N>)_mm256_sqrt_pd((__m256d)a.raw));
  } else
#endif
    return by_element(a, [](T x) { return std::sqrt(x); });
}

/// Whether a mask has a lane.
template <int N, int M> bool any(Vector<bool, N, M> mask) {
  using R = typename Vector<bool, N, M>::Register;
#if defined(__AVX512F__)
  if constexpr (sizeof(R) == 64) return _mm512_test_epi32_mask((__m512i)mask.raw, (__m512i)mask.raw) != 0;
#endif
#if defined(__AVX__)
  if constexpr (sizeof(R) == 32) return _mm256_testz_si256((__m256i)mask.raw, (__m256i)mask.raw) == 0;
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(R) == 16) return _mm_movemask_epi8((__m128i)mask.raw) != 0;
#endif
  unsigned char bytes[sizeof(R)], found = 0;
  std::memcpy(bytes, &mask.raw, sizeof bytes);
  for (const unsigned char byte : bytes) found |= byte;
  return found != 0;
}

/// The lanes of a long division that the quick path cannot do, which are rare; the others divide 0 by 1.
template <class V> [[gnu::noinline]] V long_remainder(V x, V y, typename V::Mask is_long) {
  using T = typename V::Element;
  auto at = math::begin_remainder(select(is_long, x, V(T(0))), select(is_long, y, V(T(1))));
  const auto none = decltype(at.left)(0);
  while (any(at.left > none)) at = math::continue_remainder(at);
  return math::finish_remainder(at);
}

template <class T, int N, int M>
requires std::is_floating_point_v<T> Vector<T, N, M>
operator%(Vector<T, N, M> a, Vector<T, N, M> b) {
  const auto x = abs(a), y = abs(b);
  auto [rest, is_long] = math::quick_remainder(x, y);
  if (any(is_long)) [[unlikely]]
    rest = select(is_long, long_remainder(x, y, is_long), rest);
  return math::with_sign_of(abs(rest), a);  // of NaN, too
}

/// The products of even lanes of u32 pairs, which is one instruction.
template <int N> Raw<std::uint64_t, N> multiply_low_words(Raw<std::uint64_t, N> a, Raw<std::uint64_t, N> b) {
  using R = Raw<std::uint64_t, N>;
#if defined(__AVX512F__)
  if constexpr (sizeof(R) == 64) return (R)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(R) == 32) return (R)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(R) == 16) return (R)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
  constexpr std::uint64_t kLow = 0xffffffff;
  return (a & kLow) * (b & kLow);
}

template <int N, int M>
Vector<std::uint32_t, N, M> mul_high(Vector<std::uint32_t, N, M> a, Vector<std::uint32_t, N, M> b) {
  using V = Vector<std::uint32_t, N, M>;
  using Pairs = Raw<std::uint64_t, N / 2>;
  const Pairs x = reinterpret<Pairs>(a.raw), y = reinterpret<Pairs>(b.raw);
  const Pairs even = multiply_low_words<N / 2>(x, y) >> 32, odd = multiply_low_words<N / 2>(x >> 32, y >> 32);
  constexpr std::uint64_t kHigh = 0xffffffff00000000;  // the odd lane of a pair, in memory order of x86 and ARM
  return V::of(reinterpret<typename V::Register>(even | (odd & kHigh)));
}
template <int N, int M>
Vector<std::int32_t, N, M> mul_high(Vector<std::int32_t, N, M> a, Vector<std::int32_t, N, M> b) {
  using V = Vector<std::int32_t, N, M>;
  const V high = bitcast<std::int32_t>(mul_high(bitcast<std::uint32_t>(a), bitcast<std::uint32_t>(b)));
  return high - (V::of(a.raw >> 31) & b) - (V::of(b.raw >> 31) & a);
}
template <int N, int M>
Vector<std::uint64_t, N, M> mul_high(Vector<std::uint64_t, N, M> a, Vector<std::uint64_t, N, M> b) {
  using R = Raw<std::uint64_t, N>;
  constexpr std::uint64_t kLow = 0xffffffff;
  const R low = multiply_low_words<N>(a.raw, b.raw), middle1 = multiply_low_words<N>(a.raw >> 32, b.raw),
          middle2 = multiply_low_words<N>(a.raw, b.raw >> 32), high = multiply_low_words<N>(a.raw >> 32, b.raw >> 32);
  const R carry = (low >> 32) + (middle1 & kLow) + (middle2 & kLow);
  return Vector<std::uint64_t, N, M>::of(high + (middle1 >> 32) + (middle2 >> 32) + (carry >> 32));
}

}  // namespace fermata::eager::FERMATA_ISA
