// See vector_sort.h. A file for one instruction set defines FERMATA_VECTOR_BYTES and includes this one.
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "codegen_cpu/irregular/sort_lanes.h"
#include "codegen_cpu/irregular/transpose_in_registers.h"
#include "codegen_cpu/irregular/vector_sort.h"

namespace fermata {
namespace {

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

/// Those of Network, of any number of rows: order(low, high) for each.
template <class Order> void for_comparisons(std::int64_t rows, Order order) {
  std::int64_t first = 1;
  while (2 * first < rows) first *= 2;
  for (std::int64_t p = first; p > 0; p /= 2)
    for (std::int64_t q = first, r = 0, d = p;; d = q - p, q /= 2, r = p) {
      for (std::int64_t i = 0; i + d < rows; ++i)
        if ((i & p) == r) order(i, i + d);
      if (q == p) break;
    }
}

template <class K> struct Sorter {
  using Set = Vectors<K>;
  using V = typename Set::V;
  static constexpr int N = Set::kLanes;
  static constexpr int kMostRows = 16;  // also with 16 registers, where some vectors are spilled
  static constexpr std::int64_t kMost = std::int64_t{kMostRows} * N;
  static constexpr std::int64_t kMany = (std::int64_t{1} << 20) / std::int64_t{sizeof(K)};  // with as many beside them

  [[gnu::always_inline]] static V min(V a, V b) { return a < b ? a : b; }
  [[gnu::always_inline]] static V max(V a, V b) { return a > b ? a : b; }
  [[gnu::always_inline]] static void order(V& a, V& b) {
    const V low = min(a, b);
    b = max(a, b), a = low;
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
    return by_bit<static_cast<int>(std::bit_floor(static_cast<unsigned>(kFlip)))>(min(v, partner), max(v, partner),
                                                                                  kLanes);
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
  /// Columns are numbered as their elements will follow each other in memory: which bits of a lane a number has.
  template <int kRows> static constexpr int lane_bits(int column) {
    constexpr int kTogether = kRows < N ? N / kRows : 1;  // columns that become one vector; they lie kRows lanes apart
    int lane = 0;
    for (int bit = 1; bit < N; bit *= 2)
      if ((column & bit) != 0) lane |= bit < kTogether ? bit * kRows : bit / kTogether;
    return lane;
  }
  /// Swaps what is out of order between columns so many numbers apart.
  template <int kFar, int kRows> [[gnu::always_inline]] static void order_columns(V (&rows)[kRows]) {
    if constexpr (kFar > 0) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) rows[r] = ordered<lane_bits<kRows>(kFar)>(rows[r]);
      order_columns<kFar / 2>(rows);
    }
  }
  /// Merges runs of kWidth sorted columns into one, in halves of bitonic sequences. Most steps compare whole vectors.
  template <int kWidth, int kRows> [[gnu::always_inline]] static void merge_columns(V (&rows)[kRows]) {
    if constexpr (kWidth < N) {
      constexpr int kFlip = lane_bits<kRows>(2 * kWidth - 1), kSecond = lane_bits<kRows>(kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < kRows / 2; ++r) {  // with the second run reversed
        V &a = rows[r], &b = rows[kRows - 1 - r];
        const V other = flipped<kFlip>(b, kLanes), low = min(a, other), high = max(a, other);
        a = by_bit<kSecond>(low, high, kLanes);
        b = flipped<kFlip>(by_bit<kSecond>(high, low, kLanes), kLanes);
      }
      order_columns<kWidth / 2>(rows);
#pragma GCC unroll 16
      for (int far = kRows / 2; far > 0; far /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i)
          if ((i & far) == 0) order(rows[i], rows[i + far]);
      merge_columns<2 * kWidth>(rows);
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
    if constexpr (kRows == 1) {
      rows[0] = merged_runs<1>(rows[0]);
    } else {
      sort_columns(rows, std::make_index_sequence<static_cast<std::size_t>(Network<kRows>::kCount)>{});
      merge_columns<1>(rows);
      if constexpr (kRows <= N)
        transpose_in_registers(rows);
      else
        turn_columns(rows);
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

  /// Of one vector of keys, evenly spaced from a place on that depends on their number.
  static K pivot_of_few(const K* keys, std::int64_t count) {
    const std::int64_t step = count / N;
    const auto first = static_cast<std::int64_t>(static_cast<std::uint64_t>(count) * 0x9e3779b97f4a7c15u >> 32) % step;
    V rows[1];
    for (int i = 0; i < N; ++i) rows[0][i] = keys[first + i * step];
    rows[0] = merged_runs<1>(rows[0]);
    return rows[0][N / 2];
  }
  static K pivot(const K* keys, std::int64_t count) {
    constexpr std::int64_t kShort = 8 * kMost;
    return count < kShort ? pivot_of_few(keys, count) : pivots<1>(keys, count)[0];
  }
  /// What divides keys into parts of about the same size.
  template <int kCount> static std::array<K, kCount> pivots(const K* keys, std::int64_t count) {
    constexpr std::int64_t samples = kMost / 2;
    std::array<K, static_cast<std::size_t>(samples)> sample;
    std::uint64_t state = static_cast<std::uint64_t>(count);
    for (std::int64_t i = 0; i < samples; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
      const std::uint64_t part = (state >> 32) * static_cast<std::uint64_t>(count / samples) >> 32;
      sample[static_cast<std::size_t>(i)] = keys[i * (count / samples) + static_cast<std::int64_t>(part)];
    }
    sort_few(sample.data(), sample.data(), samples);
    std::array<K, kCount> found;
    for (int i = 0; i < kCount; ++i)
      found[static_cast<std::size_t>(i)] = sample[static_cast<std::size_t>(samples * (i + 1) / (kCount + 1))];
    return found;
  }

  /// Divides keys in place and into a buffer of as many: those below the pivot stay at `keys` and the others go to
  /// `spare`, or if the others stay, the other way round. Returns the number below. Whole vectors are written, where
  /// nothing is that is still to be read.
  template <bool kOthersStay> static std::int64_t split(K* keys, std::int64_t count, K pivot, K* spare) {
    constexpr int kTogether = 8;
    const V pivots = V{} + pivot;
    K *below = kOthersStay ? spare : keys, *others = kOthersStay ? keys : spare;
    K* const first = below;
    const auto divide = [&](V v) __attribute__((always_inline)) {
      const auto mask = Set::below(v, pivots);
      Set::put(v, mask, below), Set::put(v, Set::others(mask), others);
      below += Set::count(mask), others += N - Set::count(mask);
    };
    std::int64_t i = 0;
    for (; i + kTogether * N <= count; i += kTogether * N) {
      V v[kTogether];
#pragma GCC unroll 8
      for (int k = 0; k < kTogether; ++k) v[k] = Set::load(keys + i + k * N);
#pragma GCC unroll 8
      for (int k = 0; k < kTogether; ++k) divide(v[k]);
    }
    for (; i + N <= count; i += N) divide(Set::load(keys + i));
    for (; i < count; ++i) {
      const K key = keys[i];
      const bool is_below = key < pivot;
      *below = key;
      below += is_below;
      *others = key;
      others += !is_below;
    }
    return below - first;
  }
  static std::int64_t split_at(K* keys, std::int64_t count, K pivot, K* spare, bool others_stay) {
    return others_stay ? split<true>(keys, count, pivot, spare) : split<false>(keys, count, pivot, spare);
  }

  static void copy(const K* from, std::int64_t count, K* to) {
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

  /// What becomes of keys that are in their places.
  struct Finish {
    const SortedKeys<K>* to;
    const K* first;
    void operator()(K* keys, std::int64_t count) const {
      if (to->write != nullptr)
        to->write(keys, count, to->descending, static_cast<char*>(to->elements) + (keys - first) * to->element_bytes);
    }
  };

  /// Sorts keys in place, or into `spare`, which has space for as many.
  static void sort(K* keys, K* spare, bool to_spare, std::int64_t count, int depth, const Finish& finish) {
    while (count > kMost) {
      if (depth-- == 0) {  // repeated bad pivots
        sort_by_heap(keys, count);
        break;
      }
      const K middle = pivot(keys, count);
      std::int64_t below = split_at(keys, count, middle, spare, to_spare);
      if (below == 0) {  // the pivot is the smallest key, and keys equal to it are done
        if (!to_spare) std::swap(keys, spare), to_spare = true;
        if (middle == std::numeric_limits<K>::max()) break;
        below = split<true>(keys, count, middle + 1, spare);
        finish(spare, below);
      } else if (to_spare) {
        sort(spare, keys + count - below, false, below, depth, finish);
      } else {
        sort(keys, spare + count - below, false, below, depth, finish);
        keys += below;
        std::swap(keys, spare), to_spare = true;
        count -= below;
        continue;
      }
      spare += below, count -= below;
    }
    K* const to = to_spare ? spare : keys;
    if (count > kMost)  // in order
      to_spare ? copy(keys, count, to) : void();
    else if (count > 0)
      sort_few(keys, to, count);
    finish(to, count);
  }
  /// The same for keys that no cache has space for: four parts at a time, so that they pass through memory half as
  /// often. `more` has space for `room` keys.
  static void sort_many(K* keys, K* spare, K* more, std::int64_t room, bool to_spare, std::int64_t count, int depth,
                        const Finish& finish) {
    const std::array<K, 3> bounds = count > kMany && room >= count ? pivots<3>(keys, count) : std::array<K, 3>{};
    if (depth < 2 || !(bounds[0] < bounds[1] && bounds[1] < bounds[2]))
      return sort(keys, spare, to_spare, count, depth, finish);
    K* to[4] = {to_spare ? spare : keys, to_spare ? keys : spare, more, spare + count};
    K *const first = to[0], *const second = to[1];
    const V a = V{} + bounds[0], b = V{} + bounds[1], c = V{} + bounds[2];
    std::int64_t i = 0;
    for (; i + 2 * N <= count; i += N) {  // what is put down may be a whole vector
      const V v = Set::load(keys + i);
      const auto below_a = Set::below(v, a), below_b = Set::below(v, b), below_c = Set::below(v, c);
      const decltype(below_a) ranges[] = {below_a, Set::without(below_b, below_a), Set::without(below_c, below_b)};
      for (int r = 0; r < 3; ++r) Set::put(v, ranges[r], to[r]), to[r] += Set::count(ranges[r]);
      Set::put_down(v, Set::others(below_c), to[3]), to[3] -= N - Set::count(below_c);
    }
    for (; i < count; ++i) {
      const K key = keys[i];
      const int range = (key >= bounds[0]) + (key >= bounds[1]) + (key >= bounds[2]);
      if (range == 3)
        *--to[3] = key;
      else
        *to[range]++ = key;
    }
    const std::int64_t n0 = to[0] - first, n1 = to[1] - second, n2 = to[2] - more, n3 = count - n0 - n1 - n2;
    // What is read from `more` needs what is left of it, and the others have all of it then.
    K* const place = to_spare ? spare : keys;
    sort_many(more, place + n0 + n1, more + n2, room - n2, true, n2, depth - 2, finish);
    sort_many(second, place + n0, more, room, true, n1, depth - 2, finish);
    if (to_spare) {
      sort_many(spare + count - n3, keys, more, room, false, n3, depth - 2, finish);
      sort_many(spare, keys, more, room, false, n0, depth - 2, finish);
    } else {
      sort_many(spare + count - n3, keys + count - n3, more, room, true, n3, depth - 2, finish);
      sort_many(keys, spare, more, room, false, n0, depth - 2, finish);
    }
  }
  static std::int64_t room_for(std::int64_t count) { return count > kMany ? 2 * count : count; }
  static void sort_all(K* keys, K* spare, bool to_spare, std::int64_t room, std::int64_t count,
                       const SortedKeys<K>& to) {
    const int depth = 2 * static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count)));
    sort_many(keys, spare, spare + count, room - count, to_spare, count, depth, {&to, to_spare ? spare : keys});
  }
  static void sort_columns(K* keys, std::int64_t rows, std::int64_t pitch) {
    for_comparisons(
        rows, [&](std::int64_t low, std::int64_t high) { order_rows(keys + low * pitch, keys + high * pitch, pitch); });
  }
  static void order_rows(K* low, K* high, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += N) {
      V a = Set::load(low + i), b = Set::load(high + i);
      order(a, b);
      Set::store(low + i, a), Set::store(high + i, b);
    }
  }

  static constexpr VectorSortOf<K> kLoops{&sort_all, &room_for, &split_at, &pivot, &sort_columns};
};

// ---- Keys: those of sort_keys.h with the sign bit flipped

/// to[i] = convert(from[i]), as a vector or a number.
template <class From, class To, class Convert>
[[gnu::always_inline]] inline void convert_elements(const From* from, std::int64_t count, To* to, Convert convert) {
  constexpr std::int64_t kLanes = FERMATA_VECTOR_BYTES / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  typedef From V __attribute__((vector_size(kLanes * sizeof(From))));
  typedef To W __attribute__((vector_size(kLanes * sizeof(To))));
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    V v;
    __builtin_memcpy(&v, from + i, sizeof(V));
    const W w = convert.template operator()<W>(v);
    __builtin_memcpy(to + i, &w, sizeof(W));
  }
  for (; i < count; ++i) to[i] = convert.template operator()<To>(from[i]);
}
template <class To, class From> [[gnu::always_inline]] inline To converted(From x) {
  if constexpr (std::is_arithmetic_v<From>)
    return static_cast<To>(x);
  else
    return __builtin_convertvector(x, To);
}

/// The sign bit of unsigned integers as wide as their keys is flipped.
template <class T, class K> constexpr T kFlip = std::is_unsigned_v<T> && sizeof(T) == sizeof(K)
                                                    ? static_cast<T>(std::numeric_limits<K>::min())
                                                    : T{0};
template <class T, class K>
void read_integers(const void* from, std::int64_t count, bool descending, bool, void* keys) {
  const K flip = descending ? K{-1} : K{0};
  convert_elements(static_cast<const T*>(from), count, static_cast<K*>(keys), [=]<class W>(auto x) {
    return static_cast<W>(converted<W>(static_cast<decltype(x)>(x ^ kFlip<T, K>)) ^ flip);
  });
}
template <class T, class K> void write_integers(const void* keys, std::int64_t count, bool descending, void* to) {
  const K flip = descending ? K{-1} : K{0};
  convert_elements(static_cast<const K*>(keys), count, static_cast<T*>(to), [=]<class W>(auto key) {
    return static_cast<W>(converted<W>(static_cast<decltype(key)>(key ^ flip)) ^ kFlip<T, K>);
  });
}
/// T: a signed integer as wide as the float; NaN has the highest key.
template <class T> constexpr T kMagnitude = std::numeric_limits<T>::max();
template <class T> constexpr int kSignShift = 8 * sizeof(T) - 1;
template <class T, T kInfinity, class K>
void read_floats(const void* from, std::int64_t count, bool descending, bool equal_zeros, void* keys) {
  const K flip = descending ? K{-1} : K{0};
  const T one_zero = equal_zeros ? std::numeric_limits<T>::min() : T{0};
  convert_elements(static_cast<const T*>(from), count, static_cast<K*>(keys), [=]<class W>(auto x) {
    using V = decltype(x);
    const auto all = [](T number) { return static_cast<V>(V{} + number); };
    const V bits = x == all(one_zero) ? V{} : x;
    const V in_order = static_cast<V>(bits ^ static_cast<V>(static_cast<V>(bits >> kSignShift<T>) & kMagnitude<T>));
    const V key = static_cast<V>(bits & kMagnitude<T>) > all(kInfinity) ? all(kMagnitude<T>) : in_order;
    return static_cast<W>(converted<W>(key) ^ flip);
  });
}
template <class T, T kInfinity, class K>
void write_floats(const void* keys, std::int64_t count, bool descending, void* to) {
  const K flip = descending ? K{-1} : K{0};
  convert_elements(static_cast<const K*>(keys), count, static_cast<T*>(to), [=]<class W>(auto wide) {
    const W key = converted<W>(static_cast<decltype(wide)>(wide ^ flip));
    const auto all = [](T number) { return static_cast<W>(W{} + number); };
    const W bits = static_cast<W>(key ^ static_cast<W>(static_cast<W>(key >> kSignShift<T>) & kMagnitude<T>));
    return key == all(kMagnitude<T>) ? all(static_cast<T>(kInfinity | (kInfinity >> 1))) : bits;
  });
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
  convert_elements(items, count, positions, []<class W>(auto item) { return static_cast<W>(item & 0xffffffff); });
}
std::int64_t keys_below(const std::int32_t* keys, std::int64_t count, std::int32_t bound, std::int32_t* where) {
  using Set = Vectors<std::int32_t>;
  using V = Set::V;
  const V bounds = V{} + bound;
  V numbers;
  for (int i = 0; i < Set::kLanes; ++i) numbers[i] = i;
  std::int64_t found = 0, i = 0;
  for (; i + Set::kLanes <= count; i += Set::kLanes, numbers += Set::kLanes) {
    const auto mask = Set::below(Set::load(keys + i), bounds);
    if (mask == 0) continue;
    Set::put(numbers, mask, where + found), found += Set::count(mask);
  }
  for (; i < count; ++i)
    if (keys[i] < bound) where[found++] = static_cast<std::int32_t>(i);
  return found;
}

void sort_rows_with_positions(std::int64_t* keys, std::int64_t* positions, std::int64_t rows, std::int64_t pitch) {
  using Set = Vectors<std::int64_t>;
  using V = Set::V;
  for_comparisons(rows, [&](std::int64_t low, std::int64_t high) {
    for (std::int64_t i = 0; i < pitch; i += Set::kLanes) {
      std::int64_t *const k = keys + low * pitch + i, *const l = keys + high * pitch + i;
      std::int64_t *const p = positions + low * pitch + i, *const q = positions + high * pitch + i;
      const V a = Set::load(k), b = Set::load(l), at = Set::load(p), other = Set::load(q);
      const auto changes = (b < a) | ((a == b) & (other < at));
      Set::store(k, changes ? b : a), Set::store(l, changes ? a : b);
      Set::store(p, changes ? other : at), Set::store(q, changes ? at : other);
    }
  });
}

constexpr VectorSort kKernels{.of_4_bytes = Sorter<std::int32_t>::kLoops,
                              .of_8_bytes = Sorter<std::int64_t>::kLoops,
                              .keys = kKeys,
                              .add_positions = &add_positions,
                              .positions_of = &positions_of,
                              .sort_rows_with_positions = &sort_rows_with_positions,
                              .below = &keys_below};

}  // namespace
}  // namespace fermata
