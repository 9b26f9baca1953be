// Vectors of keys and what sorting does with their lanes: the parts of vector_sort_body.h that differ between
// instruction sets. A file for one of them defines FERMATA_VECTOR_BYTES.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>
#include <type_traits>

namespace fermata {
namespace {

#if FERMATA_VECTOR_BYTES == 64

/// Instructions for lanes of each width, on masks.
struct Lanes4 {
  using Mask = __mmask16;
  static Mask below(__m512i a, __m512i b) { return _mm512_cmplt_epi32_mask(a, b); }
  static Mask without(Mask a, Mask b) { return _kandn_mask16(b, a); }
  static Mask others(Mask a) { return _knot_mask16(a); }
  static __m512i compressed(Mask m, __m512i v) { return _mm512_maskz_compress_epi32(m, v); }
  static __m512i load(__m512i beyond, Mask m, const void* p) { return _mm512_mask_loadu_epi32(beyond, m, p); }
  static void store(void* p, Mask m, __m512i v) { _mm512_mask_storeu_epi32(p, m, v); }
};
struct Lanes8 {
  using Mask = __mmask8;
  static Mask below(__m512i a, __m512i b) { return _mm512_cmplt_epi64_mask(a, b); }
  static Mask without(Mask a, Mask b) { return _kandn_mask8(b, a); }
  static Mask others(Mask a) { return _knot_mask8(a); }
  static __m512i compressed(Mask m, __m512i v) { return _mm512_maskz_compress_epi64(m, v); }
  static __m512i load(__m512i beyond, Mask m, const void* p) { return _mm512_mask_loadu_epi64(beyond, m, p); }
  static void store(void* p, Mask m, __m512i v) { _mm512_mask_storeu_epi64(p, m, v); }
};

/// Of signed integers.
template <class Key> struct Vectors {
  using K = Key;
  using Lanes = std::conditional_t<sizeof(K) == 4, Lanes4, Lanes8>;
  using Mask = typename Lanes::Mask;
  typedef K V __attribute__((vector_size(64)));
  static constexpr int kLanes = 64 / sizeof(K);
  static V load(const K* p) { return (V)_mm512_loadu_si512(p); }
  static void store(K* p, V v) { _mm512_storeu_si512(p, (__m512i)v); }
  static Mask first(std::int64_t count) { return static_cast<Mask>((1u << count) - 1); }
  static V load_first(const K* p, std::int64_t count, V beyond) {
    return (V)Lanes::load((__m512i)beyond, first(count), p);
  }
  static void store_first(K* p, V v, std::int64_t count) { Lanes::store(p, first(count), (__m512i)v); }
  static Mask below(V v, V bound) { return Lanes::below((__m512i)v, (__m512i)bound); }
  static Mask others(Mask m) { return Lanes::others(m); }
  static Mask without(Mask a, Mask b) { return Lanes::without(a, b); }
  static std::int64_t count(Mask m) { return _mm_popcnt_u32(m); }
  /// Writes the lanes of a mask up from `to`, as a whole vector.
  static void put(V v, Mask m, K* to) { store(to, (V)Lanes::compressed(m, (__m512i)v)); }
  /// Writes them down from `end`, and nothing else.
  static void put_down(V v, Mask m, K* end) {
    const std::int64_t lanes = count(m);
    store_first(end - lanes, (V)Lanes::compressed(m, (__m512i)v), lanes);
  }
};

#else

/// For each mask: the selected lanes, in order, and then the others, as numbers of 4-byte lanes.
template <int kLanes> constexpr auto kSelectedFirst = [] {
  constexpr unsigned kParts = 8 / kLanes;  // of a lane
  std::array<std::array<std::uint8_t, 8>, 1 << kLanes> table{};
  for (unsigned mask = 0; mask < table.size(); ++mask) {
    std::size_t at = 0;
    for (const unsigned wanted : {1u, 0u})
      for (unsigned lane = 0; lane < kLanes; ++lane)
        for (unsigned part = 0; part < kParts && (mask >> lane & 1u) == wanted; ++part)
          table[mask][at++] = static_cast<std::uint8_t>(kParts * lane + part);
  }
  return table;
}();

/// Instructions for lanes of each width.
struct Lanes4 {
  static __m256i numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static __m256i all(std::int64_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
  static __m256i above(__m256i a, __m256i b) { return _mm256_cmpgt_epi32(a, b); }
  static int signs(__m256i v) { return _mm256_movemask_ps(_mm256_castsi256_ps(v)); }
  static __m256i load(const std::int32_t* p, __m256i m) { return _mm256_maskload_epi32(p, m); }
  static void store(std::int32_t* p, __m256i m, __m256i v) { _mm256_maskstore_epi32(p, m, v); }
};
struct Lanes8 {
  static __m256i numbers() { return _mm256_setr_epi64x(0, 1, 2, 3); }
  static __m256i all(std::int64_t value) { return _mm256_set1_epi64x(value); }
  static __m256i above(__m256i a, __m256i b) { return _mm256_cmpgt_epi64(a, b); }
  static int signs(__m256i v) { return _mm256_movemask_pd(_mm256_castsi256_pd(v)); }
  static __m256i load(const std::int64_t* p, __m256i m) {
    return _mm256_maskload_epi64(reinterpret_cast<const long long*>(p), m);
  }
  static void store(std::int64_t* p, __m256i m, __m256i v) {
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(p), m, v);
  }
};

template <class Key> struct Vectors {
  using K = Key;
  using Lanes = std::conditional_t<sizeof(K) == 4, Lanes4, Lanes8>;
  using Mask = unsigned;
  typedef K V __attribute__((vector_size(32)));
  static constexpr int kLanes = 32 / sizeof(K);
  static V load(const K* p) { return (V)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(K* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)v); }
  static __m256i first(std::int64_t count) { return Lanes::above(Lanes::all(count), Lanes::numbers()); }
  static V load_first(const K* p, std::int64_t count, V beyond) {
    const __m256i mask = first(count);
    return (V)_mm256_blendv_epi8((__m256i)beyond, Lanes::load(p, mask), mask);
  }
  static void store_first(K* p, V v, std::int64_t count) { Lanes::store(p, first(count), (__m256i)v); }
  static Mask below(V v, V bound) { return static_cast<Mask>(Lanes::signs(Lanes::above((__m256i)bound, (__m256i)v))); }
  static Mask others(Mask m) { return m ^ ((1u << kLanes) - 1); }
  static Mask without(Mask a, Mask b) { return a & ~b; }
  static std::int64_t count(Mask m) { return _mm_popcnt_u32(m); }
  static void put(V v, Mask m, K* to) {
    const auto* const order = reinterpret_cast<const __m128i*>(kSelectedFirst<kLanes>[m].data());
    store(to, (V)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_cvtepu8_epi32(_mm_loadl_epi64(order))));
  }
  /// As a whole vector, whose last lanes these are.
  static void put_down(V v, Mask m, K* end) { put(v, others(m), end - kLanes); }
};

#endif

}  // namespace
}  // namespace fermata
