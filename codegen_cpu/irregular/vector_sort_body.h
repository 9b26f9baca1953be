// See vector_sort.h. A file for one instruction set defines FERMATA_VECTOR_BYTES and includes this one.
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "codegen_cpu/irregular/transpose_in_registers.h"
#include "codegen_cpu/irregular/vector_sort.h"

namespace fermata {
namespace {

// Vectors of signed integers: the parts that differ between instruction sets.
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
};

#endif

/// The comparisons of a sorting network: Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2M).
template <int kRows> struct Network {
  static constexpr int kCount = kRows == 1 ? 0 : kRows == 2 ? 1 : kRows == 4 ? 5 : kRows == 8 ? 19 : 63;
  std::array<std::array<int, 2>, static_cast<std::size_t>(kCount) + 1> pairs{};
  constexpr Network() {
    std::size_t at = 0;
    for (int p = 1; p < kRows; p *= 2)
      for (int k = p; k >= 1; k /= 2)
        for (int j = k % p; j <= kRows - 1 - k; j += 2 * k)
          for (int i = 0; i < k && i < kRows - j - k; ++i)
            if ((i + j) / (2 * p) == (i + j + k) / (2 * p)) pairs[at++] = {i + j, i + j + k};
  }
};

template <class K> struct Sorter {
  using Set = Vectors<K>;
  using V = typename Set::V;
  static constexpr int N = Set::kLanes;
  static constexpr int kMostRows = 16;  // also with 16 registers, where some vectors are spilled
  static constexpr std::int64_t kMost = std::int64_t{kMostRows} * N;

  [[gnu::always_inline]] static void order(V& a, V& b) {
    const V low = Set::min(a, b);
    b = Set::max(a, b), a = low;
  }
  template <int kFlip, int... kLane>
  [[gnu::always_inline]] static V flipped(V v, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(v, v, (kLane ^ kFlip)...);
  }
  template <int kBit, int... kLane>
  [[gnu::always_inline]] static V by_bit(V clear, V set, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(clear, set, ((kLane & kBit) != 0 ? N + kLane : kLane)...);
  }
  static constexpr std::make_integer_sequence<int, N> kLanes{};
  /// Compares and exchanges each lane with the one at index ^ kFlip.
  template <int kFlip> [[gnu::always_inline]] static V ordered(V v) {
    const V partner = flipped<kFlip>(v, kLanes);
    return by_bit<static_cast<int>(std::bit_floor(static_cast<unsigned>(kFlip)))>(Set::min(v, partner),
                                                                                  Set::max(v, partner), kLanes);
  }
  /// Sorts bitonic groups of 2 kFar lanes.
  template <int kFar> [[gnu::always_inline]] static V merged_bitonic(V v) {
    if constexpr (kFar == 0)
      return v;
    else
      return merged_bitonic<kFar / 2>(ordered<kFar>(v));
  }
  /// Merges runs of kRun lanes into one.
  template <int kRun> [[gnu::always_inline]] static V merged_runs(V v) {
    if constexpr (kRun == N)
      return v;
    else
      return merged_runs<2 * kRun>(merged_bitonic<kRun / 2>(ordered<2 * kRun - 1>(v)));
  }
  /// Merges runs of kRun vectors into one.
  template <int kRun, int kRows> [[gnu::always_inline]] static void merge_vectors(V (&rows)[kRows]) {
    if constexpr (kRun < kRows) {
#pragma GCC unroll 16
      for (int begin = 0; begin < kRows; begin += 2 * kRun) {
#pragma GCC unroll 16
        for (int i = 0; i < (kRun + 1) / 2; ++i) {  // the second run is reversed
          const V first = flipped<N - 1>(rows[begin + kRun + i], kLanes);
          rows[begin + kRun + i] = flipped<N - 1>(rows[begin + 2 * kRun - 1 - i], kLanes);
          rows[begin + 2 * kRun - 1 - i] = first;
        }
#pragma GCC unroll 16
        for (int far = kRun; far > 0; far /= 2)
#pragma GCC unroll 16
          for (int i = 0; i < 2 * kRun; ++i)
            if ((i & far) == 0) order(rows[begin + i], rows[begin + i + far]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) rows[i] = merged_bitonic<N / 2>(rows[i]);
      merge_vectors<2 * kRun>(rows);
    }
  }
  template <int kRows, std::size_t... kPair>
  [[gnu::always_inline]] static void sort_columns(V (&rows)[kRows], std::index_sequence<kPair...>) {
    constexpr Network<kRows> kNetwork;
    (order(rows[kNetwork.pairs[kPair][0]], rows[kNetwork.pairs[kPair][1]]), ...);
  }

  /// Each column becomes kRows / N vectors.
  template <int kRows> [[gnu::always_inline]] static void turn_columns(V (&rows)[kRows]) {
    V turned[kRows];
#pragma GCC unroll 16
    for (int b = 0; b < kRows / N; ++b) {
      V square[N];
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) square[i] = rows[b * N + i];
      transpose_in_registers(square);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) turned[i * (kRows / N) + b] = square[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) rows[i] = turned[i];
  }

  /// Up to kRows vectors of keys, more than half as many.
  template <int kRows> static void sort_rows(const K* from, K* to, std::int64_t count) {
    const V highest = V{} + std::numeric_limits<K>::max();
    V rows[kRows];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t left = count - std::int64_t{i} * N;
      rows[i] = left >= N ? Set::load(from + i * N) : left > 0 ? Set::load_first(from + i * N, left, highest) : highest;
    }
    sort_columns(rows, std::make_index_sequence<static_cast<std::size_t>(Network<kRows>::kCount)>{});
    if constexpr (kRows <= N) {
      transpose_in_registers(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) rows[i] = merged_runs<kRows>(rows[i]);
      merge_vectors<1>(rows);
    } else {
      turn_columns(rows);
      merge_vectors<kRows / N>(rows);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t left = count - std::int64_t{i} * N;
      if (left >= N)
        Set::store(to + i * N, rows[i]);
      else if (left > 0)
        Set::store_first(to + i * N, rows[i], left);
    }
  }
  template <int kRows = 1> static void sort_few(const K* from, K* to, std::int64_t count) {
    if constexpr (kRows < kMostRows)
      if (count > kRows * N) return sort_few<2 * kRows>(from, to, count);
    sort_rows<kRows>(from, to, count);
  }

  static K pivot(const K* keys, std::int64_t count) {
    constexpr std::int64_t kFew = 2 * N, kMany = kMost;
    const std::int64_t samples = count < 16 * kMost ? kFew : kMany;
    std::array<K, static_cast<std::size_t>(kMany)> sample;
    std::uint64_t state = static_cast<std::uint64_t>(count);
    for (std::int64_t i = 0; i < samples; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
      const std::uint64_t part = (state >> 32) * static_cast<std::uint64_t>(count / samples) >> 32;
      sample[static_cast<std::size_t>(i)] = keys[i * (count / samples) + static_cast<std::int64_t>(part)];
    }
    sort_few(sample.data(), sample.data(), samples);
    return sample[static_cast<std::size_t>(samples / 2)];
  }

  static std::int64_t divide(const K* keys, std::int64_t count, K pivot, K* to) {
    constexpr int kTogether = 4;
    const V pivots = V{} + pivot;
    K *low = to, *high = to + count;
    std::int64_t i = 0;
    // Whole vectors are written at both ends, so there must be space for two.
    for (; i + (kTogether + 1) * N <= count; i += kTogether * N) {
      V v[kTogether];
#pragma GCC unroll 4
      for (int k = 0; k < kTogether; ++k) v[k] = Set::load(keys + i + k * N);
#pragma GCC unroll 4
      for (int k = 0; k < kTogether; ++k) {
        const std::int64_t below = Set::divide(v[k], pivots, low, high);
        low += below, high -= N - below;
      }
    }
    for (; i + 2 * N <= count; i += N) {
      const std::int64_t below = Set::divide(Set::load(keys + i), pivots, low, high);
      low += below, high -= N - below;
    }
    for (; i < count; ++i) {
      const K key = keys[i];
      const bool is_below = key < pivot;
      *low = key, high[-1] = key;
      low += is_below, high -= !is_below;
    }
    return low - to;
  }

  static void copy(const K* from, std::int64_t count, K* to) {
    if (to == from) return;
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
  // Not a function of <algorithm>: its instance for this instruction set might be linked into other code.
  static void sort_by_heap(K* keys, std::int64_t count) {
    const auto sink = [&](std::int64_t at, std::int64_t end) {
      const K key = keys[at];
      for (std::int64_t child; (child = 2 * at + 1) < end; at = child) {
        if (child + 1 < end && keys[child] < keys[child + 1]) ++child;
        if (keys[child] <= key) break;
        keys[at] = keys[child];
      }
      keys[at] = key;
    };
    for (std::int64_t at = count / 2; at-- > 0;) sink(at, count);
    for (std::int64_t end = count; end-- > 1;) {
      const K last = keys[end];
      keys[end] = keys[0], keys[0] = last;
      sink(0, end);
    }
  }

  /// Sorts keys of `from` into `to`, `to` being `from` or `other`.
  static void sort(K* from, K* other, K* to, std::int64_t count, int depth) {
    while (count > kMost) {
      if (depth-- == 0) {  // repeated bad pivots
        sort_by_heap(from, count);
        return copy(from, count, to);
      }
      const K middle = pivot(from, count);
      std::int64_t below = divide(from, count, middle, other);
      if (below == 0) {  // the pivot is the smallest key, and keys equal to it are done
        if (middle == std::numeric_limits<K>::max()) { return copy(from, count, to); }
        below = divide(from, count, middle + 1, other);
        for (std::int64_t i = 0; i < below; ++i) to[i] = middle;
      } else {
        sort(other, from, to, below, depth);
      }
      std::swap(from, other);
      from += below, other += below, to += below, count -= below;
    }
    if (count > 0) sort_few(from, to, count);
  }
  static void sort_in_place(K* keys, K* other, std::int64_t count) {
    sort(keys, other, keys, count, 2 * static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count))));
  }
  static constexpr VectorSortOf<K> kLoops{&sort_in_place, &divide, &pivot};
};

// ---- Keys: those of sort_keys.h with the sign bit flipped

template <class T, class K>
void read_integers(const void* from, std::int64_t count, bool descending, bool, void* keys) {
  const auto* const x = static_cast<const T*>(from);
  auto* const to = static_cast<K*>(keys);
  const K flip = descending ? K{-1} : K{0};
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(K))
      to[i] = static_cast<K>(x[i] ^ static_cast<T>(std::numeric_limits<K>::min())) ^ flip;
    else
      to[i] = static_cast<K>(x[i]) ^ flip;
  }
}
template <class T, class K> void write_integers(const void* keys, std::int64_t count, bool descending, void* to) {
  const auto* const from = static_cast<const K*>(keys);
  auto* const x = static_cast<T*>(to);
  const K flip = descending ? K{-1} : K{0};
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(K))
      x[i] = static_cast<T>(static_cast<T>(from[i] ^ flip) ^ static_cast<T>(std::numeric_limits<K>::min()));
    else
      x[i] = static_cast<T>(from[i] ^ flip);
  }
}
/// T: a signed integer as wide as the float; NaN has the highest key.
template <class T, T kInfinity, class K>
void read_floats(const void* from, std::int64_t count, bool descending, bool equal_zeros, void* keys) {
  constexpr T kMagnitude = std::numeric_limits<T>::max();
  const auto* const x = static_cast<const T*>(from);
  auto* const to = static_cast<K*>(keys);
  const K flip = descending ? K{-1} : K{0};
  for (std::int64_t i = 0; i < count; ++i) {
    const T bits = equal_zeros && x[i] == std::numeric_limits<T>::min() ? T{0} : x[i];
    const T in_order = static_cast<T>(bits ^ (bits < 0 ? kMagnitude : T{0}));
    const T key = static_cast<T>(bits & kMagnitude) > kInfinity ? kMagnitude : in_order;
    to[i] = static_cast<K>(key) ^ flip;
  }
}
template <class T, T kInfinity, class K>
void write_floats(const void* keys, std::int64_t count, bool descending, void* to) {
  constexpr T kMagnitude = std::numeric_limits<T>::max();
  const auto* const from = static_cast<const K*>(keys);
  auto* const x = static_cast<T*>(to);
  const K flip = descending ? K{-1} : K{0};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto key = static_cast<T>(from[i] ^ flip);
    const T bits = static_cast<T>(key ^ (key < 0 ? kMagnitude : T{0}));
    x[i] = key == kMagnitude ? static_cast<T>(kInfinity | (kInfinity >> 1)) : bits;
  }
}

template <class T, class K> constexpr VectorSortKeys integers() {
  return {&read_integers<T, K>, &write_integers<T, K>};
}
template <class T, T kInfinity, class K> constexpr VectorSortKeys floats() {
  return {&read_floats<T, kInfinity, K>, &write_floats<T, kInfinity, K>};
}

constexpr auto kKeys = [] {
  using I4 = std::int32_t;
  using I8 = std::int64_t;
  std::array<VectorSortKeys, kDTypeCount> keys{};
  const auto put = [&](DType dtype, VectorSortKeys k) { keys[static_cast<std::size_t>(dtype)] = k; };
  put(DType::boolean, integers<std::uint8_t, I4>()), put(DType::u8, integers<std::uint8_t, I4>());
  put(DType::u16, integers<std::uint16_t, I4>()), put(DType::u32, integers<std::uint32_t, I4>());
  put(DType::u64, integers<std::uint64_t, I8>()), put(DType::i8, integers<std::int8_t, I4>());
  put(DType::i16, integers<std::int16_t, I4>()), put(DType::i32, integers<std::int32_t, I4>());
  put(DType::i64, integers<std::int64_t, I8>());
  put(DType::f16, floats<std::int16_t, 0x7c00, I4>()), put(DType::bf16, floats<std::int16_t, 0x7f80, I4>());
  put(DType::f32, floats<std::int32_t, 0x7f800000, I4>());
  put(DType::f64, floats<std::int64_t, 0x7ff0000000000000, I8>());
  return keys;
}();

void add_positions(const std::int32_t* keys, std::int64_t count, std::int64_t* items) {
  for (std::int64_t i = 0; i < count; ++i)
    items[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(std::int64_t{keys[i]}) << 32 |
                                         static_cast<std::uint64_t>(i));
}
void positions_of(const std::int64_t* items, std::int64_t count, std::int64_t* positions) {
  for (std::int64_t i = 0; i < count; ++i) positions[i] = items[i] & 0xffffffff;
}
std::int64_t keys_below(const std::int32_t* keys, std::int64_t count, std::int32_t bound, std::int32_t* where) {
  using Set = Vectors<std::int32_t>;
  using V = Set::V;
  const V bounds = V{} + bound;
  V numbers;
  for (int i = 0; i < Set::kLanes; ++i) numbers[i] = i;
  std::int64_t found = 0, i = 0;
  for (; i + Set::kLanes <= count; i += Set::kLanes, numbers += Set::kLanes)
    found += Set::put_below(Set::load(keys + i), bounds, numbers, where + found);
  for (; i < count; ++i)
    if (keys[i] < bound) where[found++] = static_cast<std::int32_t>(i);
  return found;
}

constexpr VectorSort kKernels{.of_4_bytes = Sorter<std::int32_t>::kLoops,
                              .of_8_bytes = Sorter<std::int64_t>::kLoops,
                              .keys = kKeys,
                              .add_positions = &add_positions,
                              .positions_of = &positions_of,
                              .below = &keys_below};

}  // namespace
}  // namespace fermata
