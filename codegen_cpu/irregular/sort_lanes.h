// Vectors of keys and what sorting does with their lanes: the parts of vector_sort_body.h that differ between
// instruction sets. A file for one of them defines FERMATA_VECTOR_BYTES.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace fermata {
namespace {

/// Of signed integers.
template <class K> struct Vectors;

#if FERMATA_VECTOR_BYTES == 64

template <> struct Vectors<std::int32_t> {
  using K = std::int32_t;
  typedef K V __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static V load(const K* p) { return (V)_mm512_loadu_si512(p); }
  static void store(K* p, V v) { _mm512_storeu_si512(p, (__m512i)v); }
  static __mmask16 first(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static V load_first(const K* p, std::int64_t count, V beyond) {
    return (V)_mm512_mask_loadu_epi32((__m512i)beyond, first(count), p);
  }
  static void store_first(K* p, V v, std::int64_t count) { _mm512_mask_storeu_epi32(p, first(count), (__m512i)v); }
  static V min(V a, V b) { return a < b ? a : b; }
  static V max(V a, V b) { return a > b ? a : b; }
  /// Writes lanes below the pivot up from `low`, others down from `high`; returns the number below. A whole vector may
  /// be written at `low`.
  static std::int64_t divide(V v, V pivot, K* low, K* high) {
    const __mmask16 below = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)pivot);
    const auto count = static_cast<std::int64_t>(_mm_popcnt_u32(below));
    _mm512_storeu_si512(low, _mm512_maskz_compress_epi32(below, (__m512i)v));
    _mm512_mask_storeu_epi32(high - (kLanes - count), first(kLanes - count),
                             _mm512_maskz_compress_epi32(static_cast<__mmask16>(~below), (__m512i)v));
    return count;
  }
  /// Writes lanes below the pivot to `below` and the others to `others`, a whole vector each; returns the number below.
  static std::int64_t split(V v, V pivot, K* below, K* others) {
    const __mmask16 is_below = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)pivot);
    _mm512_storeu_si512(below, _mm512_maskz_compress_epi32(is_below, (__m512i)v));
    _mm512_storeu_si512(others, _mm512_maskz_compress_epi32(_knot_mask16(is_below), (__m512i)v));
    return static_cast<std::int64_t>(_mm_popcnt_u32(is_below));
  }
  /// The same for four ranges, the last one downwards from its place.
  static void split(V v, V first, V second, V third, K* (&to)[4]) {
    const __mmask16 below_first = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)first),
                    below_second = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)second),
                    below_third = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)third);
    const __mmask16 ranges[] = {below_first, _kandn_mask16(below_first, below_second),
                                _kandn_mask16(below_second, below_third)};
    for (int i = 0; i < 3; ++i) {
      _mm512_storeu_si512(to[i], _mm512_maskz_compress_epi32(ranges[i], (__m512i)v));
      to[i] += _mm_popcnt_u32(ranges[i]);
    }
    const std::int64_t others = kLanes - _mm_popcnt_u32(below_third);
    to[3] -= others;
    _mm512_mask_storeu_epi32(to[3], Vectors::first(others),
                             _mm512_maskz_compress_epi32(_knot_mask16(below_third), (__m512i)v));
  }
  /// Writes `numbers` of the lanes below the bound to `to`, a whole vector; returns their number.
  static std::int64_t put_below(V v, V bound, V numbers, K* to) {
    const __mmask16 below = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)bound);
    if (below == 0) return 0;
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(below, (__m512i)numbers));
    return _mm_popcnt_u32(below);
  }
};

template <> struct Vectors<std::int64_t> {
  using K = std::int64_t;
  typedef K V __attribute__((vector_size(64)));
  static constexpr int kLanes = 8;
  static V load(const K* p) { return (V)_mm512_loadu_si512(p); }
  static void store(K* p, V v) { _mm512_storeu_si512(p, (__m512i)v); }
  static __mmask8 first(std::int64_t count) { return static_cast<__mmask8>((1u << count) - 1); }
  static V load_first(const K* p, std::int64_t count, V beyond) {
    return (V)_mm512_mask_loadu_epi64((__m512i)beyond, first(count), p);
  }
  static void store_first(K* p, V v, std::int64_t count) { _mm512_mask_storeu_epi64(p, first(count), (__m512i)v); }
  static V min(V a, V b) { return a < b ? a : b; }
  static V max(V a, V b) { return a > b ? a : b; }
  static std::int64_t divide(V v, V pivot, K* low, K* high) {
    const __mmask8 below = _mm512_cmplt_epi64_mask((__m512i)v, (__m512i)pivot);
    const auto count = static_cast<std::int64_t>(_mm_popcnt_u32(below));
    _mm512_storeu_si512(low, _mm512_maskz_compress_epi64(below, (__m512i)v));
    _mm512_mask_storeu_epi64(high - (kLanes - count), first(kLanes - count),
                             _mm512_maskz_compress_epi64(static_cast<__mmask8>(~below), (__m512i)v));
    return count;
  }
  /// Writes lanes below the pivot to `below` and the others to `others`, a whole vector each; returns the number below.
  static std::int64_t split(V v, V pivot, K* below, K* others) {
    const __mmask8 is_below = _mm512_cmplt_epi64_mask((__m512i)v, (__m512i)pivot);
    _mm512_storeu_si512(below, _mm512_maskz_compress_epi64(is_below, (__m512i)v));
    _mm512_storeu_si512(others, _mm512_maskz_compress_epi64(_knot_mask8(is_below), (__m512i)v));
    return static_cast<std::int64_t>(_mm_popcnt_u32(is_below));
  }
  /// The same for four ranges, the last one downwards from its place.
  static void split(V v, V first, V second, V third, K* (&to)[4]) {
    const __mmask8 below_first = _mm512_cmplt_epi64_mask((__m512i)v, (__m512i)first),
                   below_second = _mm512_cmplt_epi64_mask((__m512i)v, (__m512i)second),
                   below_third = _mm512_cmplt_epi64_mask((__m512i)v, (__m512i)third);
    const __mmask8 ranges[] = {below_first, _kandn_mask8(below_first, below_second),
                               _kandn_mask8(below_second, below_third)};
    for (int i = 0; i < 3; ++i) {
      _mm512_storeu_si512(to[i], _mm512_maskz_compress_epi64(ranges[i], (__m512i)v));
      to[i] += _mm_popcnt_u32(ranges[i]);
    }
    const std::int64_t others = kLanes - _mm_popcnt_u32(below_third);
    to[3] -= others;
    _mm512_mask_storeu_epi64(to[3], Vectors::first(others),
                             _mm512_maskz_compress_epi64(_knot_mask8(below_third), (__m512i)v));
  }
};

#else

/// For each mask: the selected lanes, in order, and then the others.
template <int kLanes> constexpr auto kBelowFirst = [] {
  std::array<std::array<std::uint8_t, kLanes>, 1 << kLanes> table{};
  for (unsigned mask = 0; mask < table.size(); ++mask) {
    std::size_t at = 0;
    for (const unsigned wanted : {1u, 0u})
      for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((mask >> lane & 1u) == wanted) table[mask][at++] = static_cast<std::uint8_t>(lane);
  }
  return table;
}();

template <> struct Vectors<std::int32_t> {
  using K = std::int32_t;
  typedef K V __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static V load(const K* p) { return (V)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(K* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)v); }
  static __m256i first(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V load_first(const K* p, std::int64_t count, V beyond) {
    const __m256i mask = first(count);
    return (V)_mm256_blendv_epi8((__m256i)beyond, _mm256_maskload_epi32(p, mask), mask);
  }
  static void store_first(K* p, V v, std::int64_t count) { _mm256_maskstore_epi32(p, first(count), (__m256i)v); }
  static V min(V a, V b) { return a < b ? a : b; }
  static V max(V a, V b) { return a > b ? a : b; }
  static std::int64_t divide(V v, V pivot, K* low, K* high) {
    const auto below =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32((__m256i)pivot, (__m256i)v))));
    const auto count = static_cast<std::int64_t>(_mm_popcnt_u32(below));
    const __m256i order =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kBelowFirst<8>[below].data())));
    const V sorted = (V)_mm256_permutevar8x32_epi32((__m256i)v, order);
    store(low, sorted), store(high - kLanes, sorted);
    return count;
  }
  static std::int64_t split(V v, V pivot, K* below, K* others) {
    const auto is_below =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32((__m256i)pivot, (__m256i)v))));
    const auto put = [&](unsigned mask, K* to) {
      const auto* const order = reinterpret_cast<const __m128i*>(kBelowFirst<8>[mask].data());
      store(to, (V)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_cvtepu8_epi32(_mm_loadl_epi64(order))));
    };
    put(is_below, below), put(is_below ^ 0xffu, others);
    return _mm_popcnt_u32(is_below);
  }
  static void split(V v, V first, V second, V third, K* (&to)[4]) {
    const auto below = [&](V pivot) {
      return static_cast<unsigned>(
          _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32((__m256i)pivot, (__m256i)v))));
    };
    const auto put = [&](unsigned mask, K* place) {
      const auto* const order = reinterpret_cast<const __m128i*>(kBelowFirst<8>[mask].data());
      store(place, (V)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_cvtepu8_epi32(_mm_loadl_epi64(order))));
    };
    const unsigned below_first = below(first), below_second = below(second), below_third = below(third);
    const unsigned ranges[] = {below_first, below_second & ~below_first, below_third & ~below_second};
    for (int i = 0; i < 3; ++i) put(ranges[i], to[i]), to[i] += _mm_popcnt_u32(ranges[i]);
    put(below_third, to[3] - kLanes);  // the others are the last ones
    to[3] -= kLanes - _mm_popcnt_u32(below_third);
  }
  static std::int64_t put_below(V v, V bound, V numbers, K* to) {
    const auto below =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32((__m256i)bound, (__m256i)v))));
    if (below == 0) return 0;
    const __m256i order =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kBelowFirst<8>[below].data())));
    store(to, (V)_mm256_permutevar8x32_epi32((__m256i)numbers, order));
    return _mm_popcnt_u32(below);
  }
};

/// The same for each mask of four 8-byte lanes, as 4-byte lanes.
constexpr auto kHalvesBelowFirst = [] {
  std::array<std::array<std::uint8_t, 8>, 16> table{};
  for (unsigned mask = 0; mask < 16; ++mask)
    for (unsigned lane = 0; lane < 8; ++lane)
      table[mask][lane] = static_cast<std::uint8_t>(2 * kBelowFirst<4>[mask][lane / 2] + lane % 2);
  return table;
}();

template <> struct Vectors<std::int64_t> {
  using K = std::int64_t;
  typedef K V __attribute__((vector_size(32)));
  static constexpr int kLanes = 4;
  static V load(const K* p) { return (V)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(K* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)v); }
  static __m256i first(std::int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static V load_first(const K* p, std::int64_t count, V beyond) {
    const __m256i mask = first(count);
    return (V)_mm256_blendv_epi8((__m256i)beyond, _mm256_maskload_epi64(reinterpret_cast<const long long*>(p), mask),
                                 mask);
  }
  static void store_first(K* p, V v, std::int64_t count) {
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(p), first(count), (__m256i)v);
  }
  static V min(V a, V b) { return a < b ? a : b; }
  static V max(V a, V b) { return a > b ? a : b; }
  static std::int64_t divide(V v, V pivot, K* low, K* high) {
    const auto below =
        static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64((__m256i)pivot, (__m256i)v))));
    const auto count = static_cast<std::int64_t>(_mm_popcnt_u32(below));
    const __m256i order =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kHalvesBelowFirst[below].data())));
    const V sorted = (V)_mm256_permutevar8x32_epi32((__m256i)v, order);
    store(low, sorted), store(high - kLanes, sorted);
    return count;
  }
  static std::int64_t split(V v, V pivot, K* below, K* others) {
    const auto is_below =
        static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64((__m256i)pivot, (__m256i)v))));
    const auto put = [&](unsigned mask, K* to) {
      const auto* const order = reinterpret_cast<const __m128i*>(kHalvesBelowFirst[mask].data());
      store(to, (V)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_cvtepu8_epi32(_mm_loadl_epi64(order))));
    };
    put(is_below, below), put(is_below ^ 0xfu, others);
    return _mm_popcnt_u32(is_below);
  }
  static void split(V v, V first, V second, V third, K* (&to)[4]) {
    const auto below = [&](V pivot) {
      return static_cast<unsigned>(
          _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64((__m256i)pivot, (__m256i)v))));
    };
    const auto put = [&](unsigned mask, K* place) {
      const auto* const order = reinterpret_cast<const __m128i*>(kHalvesBelowFirst[mask].data());
      store(place, (V)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_cvtepu8_epi32(_mm_loadl_epi64(order))));
    };
    const unsigned below_first = below(first), below_second = below(second), below_third = below(third);
    const unsigned ranges[] = {below_first, below_second & ~below_first, below_third & ~below_second};
    for (int i = 0; i < 3; ++i) put(ranges[i], to[i]), to[i] += _mm_popcnt_u32(ranges[i]);
    put(below_third, to[3] - kLanes);  // the others are the last ones
    to[3] -= kLanes - _mm_popcnt_u32(below_third);
  }
};

#endif

}  // namespace
}  // namespace fermata
