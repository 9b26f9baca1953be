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

  /// items(at, count) are `count` states from position `at`; item i goes to lane i % kReductionLanes.
  template <class Items> static void by_lanes(std::int64_t n, Items items, void* const* out) {
    Lanes lanes = [&]<std::size_t... v>(std::index_sequence<v...>) {
      return Lanes{(static_cast<void>(v), identity())...};
    }
    (std::make_index_sequence<kVectors>{});
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kReductionLanes) <= n; i += kReductionLanes)
      for_vectors<kVectors>([&](int v) { vector_of(lanes, v) = combine(vector_of(lanes, v), items(i + v * N, N)); });
    const std::int64_t rest = n - i;
    for_vectors<kVectors>([&](int v) {  // lanes beyond the last item stay as they are
      const std::int64_t count = rest - v * N;
      if (count <= 0) return;
      const auto end = static_cast<SignedOf<kWidest>>(count < N ? count : N);
      State& lane = vector_of(lanes, v);
      const State sum = combine(lane, items(n - count, count));
      lane = select_state(lane_numbers<SignedOf<kWidest>>() < Position(end), sum, lane);
    });
    merge_vectors<kVectors / 2>(lanes);
    store_states(out, 0, 1, merge_lanes<N / 2>(lanes[0]));
  }
  template <int kHalf> static void merge_vectors(Lanes& lanes) {
    if constexpr (kHalf > 0) {
      for_vectors<kHalf>(
          [&](int v) { vector_of(lanes, v) = combine(vector_of(lanes, v), vector_of(lanes, v + kHalf)); });
      merge_vectors<kHalf / 2>(lanes);
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

  [[gnu::flatten]] static void row_block(const void* x, std::int64_t n, std::int64_t first, void* const* state) {
    const Index lane = lane_numbers<std::int64_t>();
    by_lanes(
        n, [&](std::int64_t at, std::int64_t count) { return lift(x, at, count, lane + Index(first + at)); }, state);
  }
  [[gnu::flatten]] static void row_merge(const void* const* states, std::int64_t n, void* const* state) {
    by_lanes(
        n, [&](std::int64_t at, std::int64_t count) { return load_states(states, at, count); }, state);
  }

  template <int kGroup> static void columns(const char* x, std::int64_t row_bytes, std::int64_t rows, std::int64_t at,
                                            std::int64_t count, std::int64_t first, void* const* states) {
    [&]<std::size_t... v>(std::index_sequence<v...>) {
      std::array<State, kGroup> sums{(static_cast<void>(v), identity())...};
      for (std::int64_t r = 0; r < rows; ++r, x += row_bytes)
        ((sums[v] = combine(sums[v], lift(x, at + static_cast<int>(v) * N, count, Index(first + r)))), ...);
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
                  .component_bytes = {},
                  .result = DType::f32,
                  .row_block = &row_block,
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
