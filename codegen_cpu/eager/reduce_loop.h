// The loops of a monoid over one element type: the trees of ir/kernel.h, for one instruction set.
#pragma once

#include <array>
#include <tuple>

#include "codegen_cpu/eager/loop_tables.h"
#include "codegen_cpu/eager/vector.h"
#include "ir/formula_rows.h"
#include "ir/kernel.h"
#include "ir/monoids.h"

namespace fermata::eager::FERMATA_ISA {

template <int... i, class R> R rotated(R r, std::integer_sequence<int, i...>, auto by) {
  return __builtin_shufflevector(r, r, ((i + decltype(by)::value) % static_cast<int>(sizeof...(i)))...);
}

template <class T, class... S> constexpr int widest(const std::tuple<S...>&) {
  int bytes = static_cast<int>(sizeof(T));
  ((bytes = static_cast<int>(sizeof(S)) > bytes ? static_cast<int>(sizeof(S)) : bytes), ...);
  return bytes;
}

template <class Monoid, class T> struct ReduceLoop {
  using ScalarState = decltype(Monoid::template identity<T>());
  static constexpr std::size_t kComponents = std::tuple_size_v<ScalarState>;
  static constexpr int kWidest = widest<T>(ScalarState{});
  static constexpr int N = kRegisterBytes / kWidest < static_cast<int>(kReductionLanes)
                               ? kRegisterBytes / kWidest
                               : static_cast<int>(kReductionLanes);
  static constexpr int kVectors = static_cast<int>(kReductionLanes) / N;
  template <class U> using V = Vector<U, N, kWidest>;
  using Index = V<std::int64_t>;
  using Position = V<SignedOf<kWidest>>;

  template <class... S> static std::tuple<V<S>...> splat(const std::tuple<S...>& s) {
    return std::apply([](S... v) { return std::tuple<V<S>...>(V<S>(v)...); }, s);
  }
  using State = decltype(splat(ScalarState{}));
  template <std::size_t c> using Component = std::tuple_element_t<c, State>;
  template <std::size_t c>
  static constexpr auto kBytes = static_cast<std::int64_t>(sizeof(std::tuple_element_t<c, ScalarState>));

  static State identity() { return splat(Monoid::template identity<T>()); }
  template <std::size_t... i> static std::array<State, sizeof...(i)> identities(std::index_sequence<i...>) {
    return {(static_cast<void>(i), identity())...};
  }
  static State combine(const State& a, const State& b) { return Monoid::combine(a, b); }
  template <class F> static void each(F f) {
    [&]<std::size_t... c>(std::index_sequence<c...>) { (f.template operator()<c>(), ...); }
    (std::make_index_sequence<kComponents>{});
  }
  template <class F> static State make(F f) {
    return [&]<std::size_t... c>(std::index_sequence<c...>) { return State(f.template operator()<c>()...); }
    (std::make_index_sequence<kComponents>{});
  }
  static State select_state(typename Index::Mask m, const State& a, const State& b) {
    return make([&]<std::size_t c>() { return select(m, std::get<c>(a), std::get<c>(b)); });
  }
  template <class U> static V<U> lane_numbers() {
    typename V<U>::Register r;
    for (int i = 0; i < N; ++i) r[i] = static_cast<U>(i);
    return V<U>::of(r);
  }

  static State lift(const void* x, std::int64_t at, std::int64_t count, Index index) {
    const char* from = static_cast<const char*>(x) + at * static_cast<std::int64_t>(sizeof(T));
    return Monoid::lift(count >= N ? load<V<T>>(from) : load_part<V<T>>(from, static_cast<std::size_t>(count)), index);
  }
  static State load_states(const void* const* states, std::int64_t at, std::int64_t count) {
    return make([&]<std::size_t c>() {
      const char* from = static_cast<const char*>(states[c]) + at * kBytes<c>;
      return count >= N ? load<Component<c>>(from) : load_part<Component<c>>(from, static_cast<std::size_t>(count));
    });
  }
  static void store_states(void* const* states, std::int64_t at, std::int64_t count, const State& s) {
    each([&]<std::size_t c>() {
      char* to = static_cast<char*>(states[c]) + at * kBytes<c>;
      if (count >= N)
        store(to, std::get<c>(s));
      else
        store_part(to, std::get<c>(s), static_cast<std::size_t>(count));
    });
  }

  /// f(v) for v below kCount: unrolled where the registers hold a state of all lanes.
  template <int kCount, class F> static void for_vectors(F f) {
    if constexpr (kVectors * kComponents <= 16) {
      [&]<int... v>(std::integer_sequence<int, v...>) { (f(v), ...); }
      (std::make_integer_sequence<int, kCount>{});
    } else {
      for (int v = 0; v < kCount; ++v) f(v);
    }
  }
  using Lanes = std::array<State, static_cast<std::size_t>(kVectors)>;
  static State& vector_of(Lanes& lanes, int v) { return lanes[static_cast<std::size_t>(v)]; }

  /// items(at, count) are `count` states from position `at`; item i goes to lane i % kReductionLanes. Lanes of one
  /// vector are left.
  template <class Items> static State by_lanes(std::int64_t n, Items items) {
    Lanes lanes = identities(std::make_index_sequence<kVectors>{});
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kReductionLanes) <= n; i += kReductionLanes)
      for_vectors<kVectors>([&](int v) { vector_of(lanes, v) = combine(vector_of(lanes, v), items(i + v * N, N)); });
    const std::int64_t rest = n - i;
    for_vectors<kVectors>([&](int v) {  // lanes beyond the last item stay as they are
      const std::int64_t count = rest - v * N;
      if (count <= 0) return;
      State& lane = vector_of(lanes, v);
      const State sum = combine(lane, items(n - count, count));
      const auto end = static_cast<SignedOf<kWidest>>(count);
      lane = count >= N ? sum : select_state(lane_numbers<SignedOf<kWidest>>() < Position(end), sum, lane);
    });
    merge_vectors<kVectors / 2>(lanes, i > 0 ? static_cast<std::int64_t>(kReductionLanes) : n);
    return lanes[0];
  }
  /// Lanes from `used` on are at the identity, which changes nothing.
  template <int kHalf> static void merge_vectors(Lanes& lanes, std::int64_t used) {
    if constexpr (kHalf > 0) {
      for_vectors<kHalf>([&](int v) {
        if ((v + kHalf) * N < used) vector_of(lanes, v) = combine(vector_of(lanes, v), vector_of(lanes, v + kHalf));
      });
      merge_vectors<kHalf / 2>(lanes, used);
    }
  }
  template <int kHalf> static State merge_lanes(const State& s) {
    if constexpr (kHalf == 0) {
      return s;
    } else {
      const State upper = make([&]<std::size_t c>() {
        return Component<c>::of(
            rotated(std::get<c>(s).raw, std::make_integer_sequence<int, N>{}, std::integral_constant<int, kHalf>{}));
      });
      return merge_lanes<kHalf / 2>(combine(s, upper));
    }
  }

  /// Lanes [half, 2 half) of each group of 2 half lanes, or [0, half), first those of `a`, then those of `b`.
  template <int kHalf, bool kUpper, class R, int... kLane>
  static R halves_of(R a, R b, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, b, (kLane / kHalf * 2 * kHalf + kLane % kHalf + (kUpper ? kHalf : 0))...);
  }
  template <int kHalf, bool kUpper> static State halves(const State& a, const State& b) {
    return make([&]<std::size_t c>() {
      return Component<c>::of(
          halves_of<kHalf, kUpper>(std::get<c>(a).raw, std::get<c>(b).raw, std::make_integer_sequence<int, N>{}));
    });
  }
  /// merge_lanes() of a vector for each of N rows at once: lane r of the first is the state of row r.
  template <int kHalf = N / 2> static void merge_lanes_of_rows(State* rows) {
    if constexpr (kHalf > 0) {
#pragma GCC unroll 8
      for (int r = 0; r < kHalf; ++r)
        rows[r] = combine(halves<kHalf, false>(rows[2 * r], rows[2 * r + 1]),
                          halves<kHalf, true>(rows[2 * r], rows[2 * r + 1]));
      merge_lanes_of_rows<kHalf / 2>(rows);
    }
  }

  static State row_lanes(const void* x, std::int64_t n, std::int64_t first) {
    const Index lane = lane_numbers<std::int64_t>();
    return by_lanes(n,
                    [&](std::int64_t at, std::int64_t count) { return lift(x, at, count, lane + Index(first + at)); });
  }
  [[gnu::flatten]] static void row_block(const void* x, std::int64_t n, std::int64_t first, void* const* state) {
    store_states(state, 0, 1, merge_lanes<N / 2>(row_lanes(x, n, first)));
  }
  [[gnu::flatten]] static void row_merge(const void* const* states, std::int64_t n, void* const* state) {
    const State lanes =
        by_lanes(n, [&](std::int64_t at, std::int64_t count) { return load_states(states, at, count); });
    store_states(state, 0, 1, merge_lanes<N / 2>(lanes));
  }

  /// Rows that the vectors of the lanes hold: their number is known, so that all stay in registers.
  static constexpr bool kHasRowsInVectors = kComponents == 1 && N <= 16 && N > 1 && sizeof(T) >= 4;
  /// The first `count` elements, at least one, in a vector of them; what is in other lanes does not matter.
  template <class E> static E first_elements(const char* from, std::int64_t count) {
    if (count >= E::kLanes) return load<E>(from);
#if defined(__AVX2__) && !defined(__AVX512F__)
    if constexpr (E::kLanes * sizeof(T) == 32) {
      using Lane = SignedOf<sizeof(T)>;
      typename Vector<Lane, E::kLanes, sizeof(T)>::Register lanes;
      for (int i = 0; i < E::kLanes; ++i) lanes[i] = static_cast<Lane>(i);
      const auto mask = (__m256i)(lanes < static_cast<Lane>(count));
      if constexpr (sizeof(T) == 4)
        return E::of((Raw<T, E::kLanes>)_mm256_maskload_epi32(reinterpret_cast<const int*>(from), mask));
      else
        return E::of((Raw<T, E::kLanes>)_mm256_maskload_epi64(reinterpret_cast<const long long*>(from), mask));
    }
#endif
    return load_part<E>(from, static_cast<std::size_t>(count));
  }
  /// The first `count` lanes of an element's vector, and others that change nothing.
  static State lift_first(const char* from, std::int64_t count, const Position& lanes) {
    const auto end = static_cast<SignedOf<kWidest>>(count);
    const V<T> outside = std::get<0>(identity());
    return Monoid::lift(select(lanes < Position(end), first_elements<V<T>>(from, count), outside), Index(0));
  }
  template <int kHalf, int kUsed> static void merge_used(State (&lanes)[kUsed]) {
    if constexpr (kHalf > 0) {
#pragma GCC unroll 8
      for (int v = 0; v + kHalf < kUsed && v < kHalf; ++v) lanes[v] = combine(lanes[v], lanes[v + kHalf]);
      merge_used<kHalf / 2>(lanes);
    }
  }
  /// From a row to one that is read soon: loads under a mask do not make a processor read ahead by itself (Zen 5).
  static std::int64_t rows_ahead(std::int64_t row_bytes) {
    constexpr std::int64_t kAhead = 2048;
    return row_bytes > 0 ? (kAhead + row_bytes - 1) / row_bytes * row_bytes : 0;
  }
  template <int kUsed> static void rows_in_vectors(const char* from, std::int64_t row_bytes, std::int64_t n,
                                                   std::int64_t rows, void* const* states) {
    const Position numbers = lane_numbers<SignedOf<kWidest>>();
    const std::int64_t last = n - (kUsed - 1) * N;
    auto rows_of_lanes = identities(std::make_index_sequence<static_cast<std::size_t>(N)>{});
    State* const of_rows = rows_of_lanes.data();
    const std::int64_t ahead = rows_ahead(row_bytes);
    for (std::int64_t row = 0; row < rows; row += N) {
      const std::int64_t count = rows - row < N ? rows - row : N;
      for (std::int64_t r = 0; r < count; ++r, from += row_bytes) {
        __builtin_prefetch(from + ahead);
        [&]<int... v>(std::integer_sequence<int, v...>) {
          State lanes[kUsed] = {(v + 1 < kUsed
                                     ? lift(from, v * N, N, Index(0))
                                     : lift_first(from + v * N * static_cast<int>(sizeof(T)), last, numbers))...};
          merge_used<kVectors / 2>(lanes);
          of_rows[r] = lanes[0];
        }
        (std::make_integer_sequence<int, kUsed>{});
      }
      merge_lanes_of_rows(of_rows);
      store_states(states, row, count, combine(identity(), of_rows[0]));
    }
  }
  /// Calls rows_in_vectors() for as many vectors as a row has.
  template <int kUsed = 1> static void rows_of_few_vectors(const char* from, std::int64_t row_bytes, std::int64_t n,
                                                           std::int64_t rows, void* const* states) {
    if constexpr (kUsed < kVectors)
      if (n > kUsed * N) return rows_of_few_vectors<kUsed + 1>(from, row_bytes, n, rows, states);
    rows_in_vectors<kUsed>(from, row_bytes, n, rows, states);
  }

  /// Of a state that is an element and its position: rows as before, with positions as wide as the elements.
  static constexpr bool kHasPositionsInVectors = kComponents == 2 && sizeof(T) >= 4 && requires(T t) {
    Monoid::replaces(t, t);
  };
  static constexpr int kLanes = kRegisterBytes / static_cast<int>(sizeof(T));
  using Elements = Vector<T, kLanes, sizeof(T)>;
  using Places = Vector<SignedOf<sizeof(T)>, kLanes, sizeof(T)>;
  using Found = std::tuple<Elements, Places>;
  static Places place_numbers(std::int64_t from) {
    typename Places::Register r;
    for (int i = 0; i < kLanes; ++i) r[i] = static_cast<SignedOf<sizeof(T)>>(i);
    return Places::of(r) + Places(static_cast<SignedOf<sizeof(T)>>(from));
  }
  /// The last vector may have elements of the one before it: their positions are the same.
  static Found find_in_lanes(const char* from, std::int64_t n) {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    const Places first = place_numbers(0);
    if (n < kLanes) {
      const auto there = first < Places(static_cast<SignedOf<sizeof(T)>>(n));
      const Elements worst(std::get<0>(Monoid::template identity<T>()));
      return {select(there, first_elements<Elements>(from, n), worst), first};
    }
    Elements best = load<Elements>(from);
    Places at = first;
    for (std::int64_t i = kLanes; i < n; i += kLanes) {
      const std::int64_t begin = i + kLanes <= n ? i : n - kLanes;
      const Elements x = load<Elements>(from + begin * kBytes);
      const auto take = Monoid::replaces(x, best);
      best = select(take, x, best), at = select(take, place_numbers(begin), at);
    }
    return {best, at};
  }
  template <int kHalf = kLanes / 2> static void merge_found(Found* rows) {
    if constexpr (kHalf > 0) {
      const auto half = [](const Found& a, const Found& b, auto upper) {
        constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
        return Found(
            Elements::of(halves_of<kHalf, decltype(upper)::value>(std::get<0>(a).raw, std::get<0>(b).raw, kAll)),
            Places::of(halves_of<kHalf, decltype(upper)::value>(std::get<1>(a).raw, std::get<1>(b).raw, kAll)));
      };
      for (int r = 0; r < kHalf; ++r)
        rows[r] = Monoid::combine(half(rows[2 * r], rows[2 * r + 1], std::false_type()),
                                  half(rows[2 * r], rows[2 * r + 1], std::true_type()));
      merge_found<kHalf / 2>(rows);
    }
  }
  static void positions_in_vectors(const char* from, std::int64_t row_bytes, std::int64_t n, std::int64_t rows,
                                   void* const* states) {
    const Found nothing(Elements(std::get<0>(Monoid::template identity<T>())), place_numbers(0));
    auto found = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array<Found, sizeof...(i)>{(static_cast<void>(i), nothing)...};
    }
    (std::make_index_sequence<static_cast<std::size_t>(kLanes)>{});
    for (std::int64_t row = 0; row < rows; row += kLanes) {
      const std::int64_t count = rows - row < kLanes ? rows - row : kLanes;
      for (std::int64_t r = 0; r < count; ++r, from += row_bytes)
        found[static_cast<std::size_t>(r)] = find_in_lanes(from, n);
      merge_found(found.data());
      for (std::int64_t r = 0; r < count; ++r) {
        static_cast<T*>(states[0])[row + r] = std::get<0>(found[0]).raw[r];
        static_cast<std::int64_t*>(states[1])[row + r] = std::get<1>(found[0]).raw[r];
      }
    }
  }

  [[gnu::flatten]] static void rows_of_one_block(const void* x, std::int64_t row_bytes, std::int64_t n,
                                                 std::int64_t rows, void* const* states) {
    if constexpr (kHasPositionsInVectors)
      if (n > 0 && n <= kReductionBlock)
        return positions_in_vectors(static_cast<const char*>(x), row_bytes, n, rows, states);
    if constexpr (kHasRowsInVectors)
      if (n > 0 && n <= static_cast<std::int64_t>(kReductionLanes))
        return rows_of_few_vectors(static_cast<const char*>(x), row_bytes, n, rows, states);
    const auto* from = static_cast<const char*>(x);
    auto rows_of_lanes = identities(std::make_index_sequence<static_cast<std::size_t>(N)>{});
    State* const lanes = rows_of_lanes.data();
    for (std::int64_t row = 0; row < rows; row += N) {
      const std::int64_t count = rows - row < N ? rows - row : N;
      for (std::int64_t r = 0; r < count; ++r, from += row_bytes) lanes[r] = row_lanes(from, n, 0);
      merge_lanes_of_rows(lanes);
      store_states(states, row, count, lanes[0]);
    }
  }
  /// A state of one component may take the identity last: it changes bits only of a zero or a NaN, and those of each.
  static constexpr bool kIdentityLast = kComponents == 1;
  /// Merges items i, i + q, ... of `kItems` lines of rows, as by halves.
  template <int kItems, class Item> static void merge_line(Item item, std::int64_t i, std::int64_t q, std::int64_t rows,
                                                           bool is_last, void* const* states) {
    for (std::int64_t at = 0; at < rows; at += N) {
      State left = item(i, at);
      if constexpr (kItems > 2) left = combine(left, item(i + 2 * q, at));
      if constexpr (kItems > 1) {
        State right = item(i + q, at);
        if constexpr (kItems > 3) right = combine(right, item(i + 3 * q, at));
        left = combine(left, right);
      }
      if (kIdentityLast && is_last) left = combine(identity(), left);
      store_states(states, at, N, left);
    }
  }
  static std::array<void*, kComponents> line_of(void* const* states, std::int64_t offset) {
    std::array<void*, kComponents> line;
    each([&]<std::size_t c>() { line[c] = static_cast<char*>(states[c]) + offset * kBytes<c>; });
    return line;
  }
  /// Merges n lines of rows into a quarter of as many, each `pitch` states after the one before it.
  template <class Item> static std::int64_t merge_lines(Item item, std::int64_t n, std::int64_t rows,
                                                        void* const* states, std::int64_t pitch) {
    std::int64_t q = 1;  // a quarter of the power of two that is no less than n
    while (4 * q < n) q *= 2;
    for (std::int64_t i = 0; i < q; ++i) {
      const auto line = line_of(states, i * pitch);
      if (i + 3 * q < n)
        merge_line<4>(item, i, q, rows, q == 1, line.data());
      else if (i + 2 * q < n)
        merge_line<3>(item, i, q, rows, q == 1, line.data());
      else if (i + q < n)
        merge_line<2>(item, i, q, rows, q == 1, line.data());
      else
        merge_line<1>(item, i, q, rows, q == 1, line.data());
    }
    return q;
  }
  /// One vector of rows after the other.
  template <class Item>
  static void vectors_side_by_side(Item item, std::int64_t n, std::int64_t rows, void* const* states) {
    alignas(64) char kept[kComponents][kReductionLanes / 4][N * 8];
    void* lines[kComponents];
    each([&]<std::size_t c>() { lines[c] = kept[c]; });
    const auto line_at = [&](std::int64_t i) {
      return make(
          [&]<std::size_t c>() { return load<Component<c>>(static_cast<const char*>(lines[c]) + i * N * kBytes<c>); });
    };
    for (std::int64_t at = 0; at < rows; at += N) {
      std::int64_t left = merge_lines([&](std::int64_t i, std::int64_t) { return item(i, at); }, n, N, lines, N);
      while (left > 1) left = merge_lines([&](std::int64_t i, std::int64_t) { return line_at(i); }, left, N, lines, N);
      store_states(states, at, N, line_at(0));
    }
  }
  [[gnu::flatten]] static void rows_side_by_side(const void* x, std::int64_t line_bytes, std::int64_t n,
                                                 std::int64_t position, std::int64_t rows, void* const* states,
                                                 std::int64_t pitch) {
    const auto lifted = [&](std::int64_t i, std::int64_t at) {
      const State state = lift(static_cast<const char*>(x) + i * line_bytes, at, N, Index(position + i));
      return kIdentityLast ? state : combine(identity(), state);
    };
    const auto merged = [&](std::int64_t i, std::int64_t at) {
      return make([&]<std::size_t c>() {
        return load<Component<c>>(static_cast<const char*>(states[c]) + (i * pitch + at) * kBytes<c>);
      });
    };
    constexpr std::int64_t kFewRows = 4 * N;  // lines of more are read as streams
    if (rows <= kFewRows) return vectors_side_by_side(lifted, n, rows, states);
    std::int64_t lines = merge_lines(lifted, n, rows, states, pitch);
    while (lines > 1) lines = merge_lines(merged, lines, rows, states, pitch);
  }

  template <int kGroup> static void columns(const char* x, std::int64_t row_bytes, std::int64_t rows, std::int64_t at,
                                            std::int64_t count, std::int64_t first, void* const* states) {
    [&]<std::size_t... v>(std::index_sequence<v...>) {
      std::array<State, kGroup> sums{(static_cast<void>(v), identity())...};
      const std::int64_t ahead = at + rows_ahead(row_bytes);
      for (std::int64_t r = 0; r < rows; ++r, x += row_bytes) {
        if (kGroup == 1) __builtin_prefetch(x + ahead);
        ((sums[v] = combine(sums[v], lift(x, at + static_cast<int>(v) * N, count, Index(first + r)))), ...);
      }
      (store_states(states, at + static_cast<int>(v) * N, count, sums[v]), ...);
    }
    (std::make_index_sequence<kGroup>{});
  }
  [[gnu::flatten]] static void column_block(const void* x, std::int64_t row_bytes, std::int64_t rows, std::int64_t n,
                                            std::int64_t first, void* const* states) {
    constexpr int kGroup = kComponents == 1 ? 4 : 2;
    const auto* from = static_cast<const char*>(x);
    std::int64_t at = 0;
    for (; at + kGroup * N <= n; at += kGroup * N) columns<kGroup>(from, row_bytes, rows, at, N, first, states);
    for (; at < n; at += N) columns<1>(from, row_bytes, rows, at, n - at, first, states);
  }

  [[gnu::flatten]] static void column_merge(void* const* totals, const void* const* states, std::int64_t n) {
    for (std::int64_t at = 0; at < n; at += N)
      store_states(totals, at, n - at, combine(load_states(totals, at, n - at), load_states(states, at, n - at)));
  }
  [[gnu::flatten]] static void fill_identity(void* const* states, std::int64_t n) {
    const State s = identity();
    for (std::int64_t at = 0; at < n; at += N) store_states(states, at, n - at, s);
  }
  [[gnu::flatten]] static void finish(const void* const* states, void* out, std::int64_t n) {
    for (std::int64_t at = 0; at < n; at += N) {
      const auto result = Monoid::finish(load_states(states, at, n - at));
      char* to = static_cast<char*>(out) + at * static_cast<std::int64_t>(kElementBytes<decltype(result)>);
      if (n - at >= N)
        store(to, result);
      else
        store_part(to, result, static_cast<std::size_t>(n - at));
    }
  }

  static ReduceLoops loops() {
    ReduceLoops l{.components = kComponents,
                  .lanes = N,
                  .positions_in_vectors = kHasPositionsInVectors,
                  .component_bytes = {},
                  .result = DType::f32,
                  .row_block = &row_block,
                  .rows_of_one_block = &rows_of_one_block,
                  .rows_side_by_side = &rows_side_by_side,
                  .row_merge = &row_merge,
                  .column_block = &column_block,
                  .column_merge = &column_merge,
                  .fill_identity = &fill_identity,
                  .finish = &finish};
    each([&]<std::size_t c>() { l.component_bytes[c] = static_cast<std::uint8_t>(kBytes<c>); });
    l.result = dtype_of<typename decltype(Monoid::finish(identity()))::Element>;
    return l;
  }
};

/// Adds the loops of one row for the compute dtypes of its rule, if `wanted`.
template <class Monoid, DTypeRule kRule, bool kWanted> void put_reduction(LoopTables& tables, Op op) {
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    visit_compute(static_cast<DType>(t), [&]<class T>() {
      if constexpr (kWanted && accepts(kRule, dtype_of<T>))
        tables.reduce[static_cast<std::size_t>(op)][t] = ReduceLoop<Monoid, T>::loops();
    });
}

}  // namespace fermata::eager::FERMATA_ISA
