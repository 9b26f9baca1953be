// Loads and stores of SIMD values, whole or the first few lanes. In memory a bool is one byte, 0 or 1.
#pragma once

#include "codegen_cpu/eager/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fermata::eager::FERMATA_ISA {

/// Fewer than kMax bytes, without a call.
template <std::size_t kMax> void copy_few(void* to, const void* from, std::size_t bytes) {
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  const auto overlapping = [&]<class Chunk>(Chunk) {  // one from each end
    Chunk first, last;
    std::memcpy(&first, f, sizeof(Chunk)), std::memcpy(&last, f + bytes - sizeof(Chunk), sizeof(Chunk));
    std::memcpy(t, &first, sizeof(Chunk)), std::memcpy(t + bytes - sizeof(Chunk), &last, sizeof(Chunk));
  };
  if constexpr (kMax > 32)
    if (bytes >= 32) return overlapping(Raw<char, 32>{});
  if constexpr (kMax > 16)
    if (bytes >= 16) return overlapping(Raw<char, 16>{});
  if (bytes >= 8) return overlapping(std::uint64_t{});
  if (bytes >= 4) return overlapping(std::uint32_t{});
  if (bytes >= 2) return overlapping(std::uint16_t{});
  if (bytes == 1) *t = *f;
}

template <class R> R load_raw(const void* from) {
  R r;
  std::memcpy(&r, from, sizeof r);
  return r;
}
/// The first `bytes` of a register; the rest is zero.
template <class R> R load_raw_part(const void* from, std::size_t bytes) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (sizeof(R) == 64)
    return (R)_mm512_maskz_loadu_epi8((std::uint64_t{1} << bytes) - 1, from);
  else if constexpr (sizeof(R) == 32)
    return (R)_mm256_maskz_loadu_epi8((1u << bytes) - 1, from);
  else if constexpr (sizeof(R) == 16)
    return (R)_mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << bytes) - 1), from);
#endif
  R r{};
  copy_few<sizeof(R)>(&r, from, bytes);
  return r;
}
template <class R> void store_raw_part(void* to, R r, std::size_t bytes) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (sizeof(R) == 64)
    return _mm512_mask_storeu_epi8(to, (std::uint64_t{1} << bytes) - 1, (__m512i)r);
  else if constexpr (sizeof(R) == 32)
    return _mm256_mask_storeu_epi8(to, (1u << bytes) - 1, (__m256i)r);
  else if constexpr (sizeof(R) == 16)
    return _mm_mask_storeu_epi8(to, static_cast<__mmask16>((1u << bytes) - 1), (__m128i)r);
#endif
  copy_few<sizeof(R)>(to, &r, bytes);
}

/// V as it lies in memory.
template <class V> using InMemory = Raw<std::conditional_t<V::kIsMask, std::int8_t, typename V::Lane>, V::kLanes>;
template <class V> V from_memory(InMemory<V> r) {
  if constexpr (V::kIsMask)
    return V::of(V::template resized<typename V::Lane>(r != InMemory<V>{}));
  else
    return V::of(r);
}
template <class V> InMemory<V> to_memory(V v) {
  if constexpr (V::kIsMask)
    return V::template resized<std::int8_t>(v.raw) & std::int8_t{1};
  else
    return v.raw;
}

template <class V> inline constexpr std::size_t kElementBytes = sizeof(typename V::Element);

template <class V> V load(const void* from) { return from_memory<V>(load_raw<InMemory<V>>(from)); }
template <class V> void store(void* to, V v) {
  const InMemory<V> r = to_memory(v);
  std::memcpy(to, &r, sizeof r);
}
/// The first `count` elements, fewer than V::kLanes.
template <class V> V load_part(const void* from, std::size_t count) {
  return from_memory<V>(load_raw_part<InMemory<V>>(from, count * kElementBytes<V>));
}
template <class V> void store_part(void* to, V v, std::size_t count) {
  store_raw_part(to, to_memory(v), count * kElementBytes<V>);
}

}  // namespace fermata::eager::FERMATA_ISA
