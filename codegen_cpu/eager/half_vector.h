// f16 and bf16 in memory as SIMD values of f32, bit for bit what ir/float16.h does.
#pragma once

#include "codegen_cpu/eager/vector.h"
#include "ir/dtype.h"

namespace fermata::eager::FERMATA_ISA {

template <class T> inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T> using ComputeOf = std::conditional_t<kIsHalf<T>, float, T>;

template <int N> Raw<float, N> widen_f16(Raw<std::uint16_t, N> half) {
#if defined(__AVX512F__)
  if constexpr (N == 16) return (Raw<float, N>)_mm512_cvtph_ps((__m256i)half);
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return (Raw<float, N>)_mm256_cvtph_ps((__m128i)half);
#endif
  using U = Raw<std::uint32_t, N>;
  const U bits = __builtin_convertvector(half, U), magnitude = (bits & 0x7fffu) << 13;
  // The exponents differ by 112. A product, because the exponent of a subnormal cannot be added to.
  const U finite = (U)((Raw<float, N>)magnitude * 0x1p112f);
  const U special = magnitude | 0x7f800000u | (magnitude > 0x0f800000u ? U{} + 0x400000u : U{});
  return (Raw<float, N>)((magnitude >= 0x0f800000u ? special : finite) | (bits & 0x8000u) << 16);
}

template <int N> Raw<std::uint16_t, N> narrow_f16(Raw<float, N> x) {
#if defined(__AVX512F__)
  if constexpr (N == 16) return (Raw<std::uint16_t, N>)_mm512_cvtps_ph((__m512)x, 0);
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return (Raw<std::uint16_t, N>)_mm256_cvtps_ph((__m256)x, 0);
#endif
  using U = Raw<std::uint32_t, N>;
  const U bits = (U)x, magnitude = bits & 0x7fffffffu;
  const U normal = (magnitude + (0xfffu - (112u << 23)) + (magnitude >> 13 & 1u)) >> 13;
  // Adding 1/2 puts the spacing of subnormal results, 2^-24, at the last bit.
  const U subnormal = (U)((Raw<float, N>)magnitude + 0.5f) - 0x3f000000u;
  const U nan = (magnitude >> 13 & 0x3ffu) | 0x7e00u;
  const U finite = magnitude < 0x38800000u ? subnormal : magnitude < 0x47800000u ? normal : U{} + 0x7c00u;
  return __builtin_convertvector((magnitude > 0x7f800000u ? nan : finite) | (bits >> 16 & 0x8000u),
                                 Raw<std::uint16_t, N>);
}

template <int N> Raw<float, N> widen_bf16(Raw<std::uint16_t, N> half) {
  return (Raw<float, N>)(__builtin_convertvector(half, Raw<std::uint32_t, N>) << 16);
}
template <int N> Raw<std::uint16_t, N> narrow_bf16(Raw<float, N> x) {
  using U = Raw<std::uint32_t, N>;
  const U bits = (U)x;
  const U rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, nan = bits >> 16 | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, Raw<std::uint16_t, N>);
}

/// N lanes of a stored dtype as values of its compute dtype.
template <class T, class V> V load_stored(const void* from, std::size_t count) {
  constexpr int N = V::kLanes;
  if constexpr (!kIsHalf<T>) {
    return count == N ? load<V>(from) : load_part<V>(from, count);
  } else {
    using R = Raw<std::uint16_t, N>;
    const R half = count == N ? load_raw<R>(from) : load_raw_part<R>(from, count * 2);
    if constexpr (std::is_same_v<T, Float16>)
      return V::of(widen_f16<N>(half));
    else
      return V::of(widen_bf16<N>(half));
  }
}
template <class T, class V> void store_stored(void* to, V v, std::size_t count) {
  constexpr int N = V::kLanes;
  if constexpr (!kIsHalf<T>) {
    if (count == N)
      store(to, v);
    else
      store_part(to, v, count);
  } else {
    Raw<std::uint16_t, N> half;
    if constexpr (std::is_same_v<T, Float16>)
      half = narrow_f16<N>(v.raw);
    else
      half = narrow_bf16<N>(v.raw);
    if (count == N)
      std::memcpy(to, &half, sizeof half);
    else
      store_raw_part(to, half, count * 2);
  }
}

}  // namespace fermata::eager::FERMATA_ISA
