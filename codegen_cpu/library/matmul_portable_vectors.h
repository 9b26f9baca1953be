// Products with a vector, or with a few. Part of matmul_portable_body.h, whose rules hold here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "codegen_cpu/irregular/transpose_in_registers.h"
#include "codegen_cpu/library/matmul_portable_storage.h"

namespace fermata {
namespace {

/// Bytes that rows are asked for ahead, as a product with a vector reads a matrix but once: processors by themselves
/// stop at the end of a page. 4096^2 of f32 on Zen 5: 1750 us without, 1240 with.
constexpr std::int64_t kAhead = 8192, kLine = 64;

/// sums[j] continues its chain over four rows of the matrix, then single ones.
template <class S> void add_rows(const typename S::Sum* x, const typename S::Element* matrix, std::int64_t row,
                                 std::int64_t k, typename S::Sum* sums, std::int64_t columns) {
  using E = typename S::Element;
  using T = typename S::Sum;
  constexpr std::int64_t kOfLine = kLine / static_cast<std::int64_t>(sizeof(E));
  // Of wide rows the next four are found ahead by processors themselves. Parts of rows are asked for in the loop: [768,
  // 384] of [768, 768] on Sapphire Rapids at 14.5 GB/s instead of 13.1, [768, 128] at 17.6 instead of 13.3.
  constexpr std::int64_t kNarrow = 3072, kToSecondLevel = 2;
  const std::int64_t bytes = columns * static_cast<std::int64_t>(sizeof(E));
  const bool is_narrow = bytes <= kNarrow;
  const std::int64_t ahead = is_narrow ? (2 * kAhead / bytes + 1) * row : 0;
  std::int64_t p = 0;
  const auto add_all = [&]<int kRows>(bool asks_ahead) __attribute__((always_inline)) {
    Vector<T> numbers[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) numbers[i] = splat(x[p + i]);
    std::int64_t j = 0;
    for (; j + kLanes<T> <= columns; j += kLanes<T>) {
      if (asks_ahead && j % kOfLine == 0)
        for (std::int64_t i = 0; i < kRows; ++i) __builtin_prefetch(matrix + ahead + i * row + j, 0, kToSecondLevel);
      Vector<T> sum = load<Vector<T>>(sums + j);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sum = fused(numbers[i], load_widened<S>(matrix + i * row + j), sum);
      store(sums + j, sum);
    }
    for (; j < columns; ++j)
      for (int i = 0; i < kRows; ++i) sums[j] = fused(x[p + i], S::widen(matrix[i * row + j]), sums[j]);
  };
  for (; p + 4 <= k; p += 4, matrix += 4 * row) add_all.template operator()<4>(is_narrow);
  for (; p < k; ++p, matrix += row) add_all.template operator()<1>(false);
}

template <std::int64_t kBy, class V, std::size_t... I> inline V rotated(V v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, static_cast<int>((I + kBy) % sizeof...(I))...);
}
/// The sum of all lanes, by halves.
template <class T, std::int64_t kHalf = kLanes<T> / 2> inline T sum_of_lanes(Vector<T> v) {
  if constexpr (kHalf == 0)
    return v[0];
  else
    return sum_of_lanes<T, kHalf / 2>(v + rotated<kHalf>(v, std::make_index_sequence<kLanes<T>>()));
}

/// A vector of elements of a row.
template <class S> inline Vector<typename S::Sum> line_at(const typename S::Element* from) {
  if constexpr (std::is_same_v<typename S::Element, typename S::Sum>)
    return load<Vector<typename S::Sum>>(from);
  else
    return load_widened<S>(from);
}

/// The first `count` elements, fewer than fill a vector, and zeros. `may_pass`: a whole vector may be read.
template <class S> [[gnu::always_inline]] inline Vector<typename S::Sum> first_lanes(const typename S::Element* from,
                                                                                     std::int64_t count,
                                                                                     bool may_pass) {
  using T = typename S::Sum;
  using V = Vector<T>;
  using Lane = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  typedef Lane Lanes __attribute__((vector_size(sizeof(V))));
  if (may_pass) {
    Lanes lanes;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) lanes[i] = i;
    return reinterpret_cast<V>(reinterpret_cast<Lanes>(line_at<S>(from)) & (lanes < static_cast<Lane>(count)));
  }
  T few[kLanes<T>];
  for (std::int64_t i = 0; i < kLanes<T>; ++i) few[i] = i < count ? S::widen(from[i]) : T{};
  return load<V>(few);
}

/// sums[r] = sum over p of x[r, p] y[p] for a few rows of x. Element p goes to chain p % 64; chains are merged by
/// halves. Lines that lie `ahead` elements later are fetched, if it is not negative; `may_pass`: a vector may be read
/// that begins within y and ends beyond it. Of several rows, some chains of all are done together, then the next ones:
/// so each element of y is loaded once.
template <class S, int kRows> void dots(const typename S::Sum* x, std::int64_t x_row, const typename S::Element* y,
                                        std::int64_t k, bool may_pass, std::int64_t ahead, typename S::Sum* sums) {
  using T = typename S::Sum;
  using V = Vector<T>;
  constexpr int kVectors = kHalvesChains / kLanes<T>, kTogether = kRows == 1 || kVectors < 4 ? kVectors : 4;
  const std::int64_t whole = k / kHalvesChains * kHalvesChains;
  const std::int64_t rest = k - whole, full = rest / kLanes<T>;  // the vectors of the rest that y fills
  V last{};                                                      // the one after them; x is padded with zeros
  if (rest % kLanes<T> != 0) last = first_lanes<S>(y + whole + full * kLanes<T>, rest % kLanes<T>, may_pass);
  V merged[kRows][kVectors];
#pragma GCC unroll 16
  for (int first = 0; first < kVectors; first += kTogether) {
    V acc[kRows][kTogether];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kTogether; ++v) acc[r][v] = V{};  // GCC clears a whole array by a slow instruction
    const auto add = [&](const T* a, const auto& line_of) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int v = 0; v < kTogether; ++v) {
        const V line = line_of(first + v);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r)
          acc[r][v] = fused(load<V>(a + r * x_row + (first + v) * kLanes<T>), line, acc[r][v]);
      }
    };
    const auto look_ahead = [&](std::int64_t p, std::int64_t count) __attribute__((always_inline)) {
      if (first != 0 || ahead < 0) return;
      for (std::int64_t i = 0; i < count; i += kLine / static_cast<std::int64_t>(sizeof(*y)))
        __builtin_prefetch(y + p + ahead + i);
    };
    for (std::int64_t p = 0; p < whole; p += kHalvesChains) {
      look_ahead(p, kHalvesChains);
      add(
          x + p, [&](int v) __attribute__((always_inline)) { return line_at<S>(y + p + v * kLanes<T>); });
    }
    if (rest != 0) {
      look_ahead(whole, rest);
      add(
          x + whole, [&](int v) __attribute__((always_inline)) {
            return v < full ? line_at<S>(y + whole + v * kLanes<T>) : v == full ? last : V{};
          });
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kTogether; ++v) merged[r][first + v] = acc[r][v];
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int half = kVectors / 2; half > 0; half /= 2)
#pragma GCC unroll 16
      for (int v = 0; v < half; ++v) merged[r][v] = merged[r][v] + merged[r][v + half];
    sums[r] = sum_of_lanes<T>(merged[r][0]);
  }
}

/// Of lanes that are summed by halves, those of all rows at a time: lane r of the result is sum_of_lanes(rows[r]).
template <class T, int kHalf = static_cast<int>(kLanes<T> / 2)> inline Vector<T> sums_of_rows(Vector<T>* rows) {
  if constexpr (kHalf == 0) {
    return rows[0];
  } else {
    constexpr auto lanes = std::make_integer_sequence<int, static_cast<int>(kLanes<T>)>();
#pragma GCC unroll 8
    for (int r = 0; r < kHalf; ++r)
      rows[r] = lanes_of_both<kHalf, false>(rows[r], rows[r + kHalf], lanes) +
                lanes_of_both<kHalf, true>(rows[r], rows[r + kHalf], lanes);
    return sums_of_rows<T, kHalf / 2>(rows);
  }
}

/// dots() of one vector, a column for each lane at a time. What follows whole groups of chains fills kRest vectors, the
/// last of them perhaps in part.
template <class S, int kRest> void dots_of_columns(const PortableVectorProduct& v, const typename S::Sum* x) {
  using T = typename S::Sum;
  using V = Vector<T>;
  constexpr int kVectors = kHalvesChains / kLanes<T>;
  constexpr std::int64_t kOfLine = kLine / static_cast<std::int64_t>(sizeof(T)), kAheadBy = kOfLine * (kAhead / kLine);
  const std::int64_t whole = v.k / kHalvesChains * kHalvesChains, last = whole + (kRest - 1) * kLanes<T>;
  const std::int64_t end_of_matrix = (v.columns - 1) * v.matrix_column + v.k;
  const bool is_dense = v.matrix_column >= v.k && v.matrix_column <= v.k + kLine;
  const T* y = static_cast<const T*>(v.matrix);
  T* out = static_cast<T*>(v.out);
  V rows[kLanes<T>] = {};
  for (std::int64_t j = 0; j < v.columns; j += kLanes<T>) {
    const std::int64_t count = smaller(kLanes<T>, v.columns - j);
    for (std::int64_t r = 0; r < count; ++r, y += v.matrix_column) {
      for (std::int64_t i = 0; is_dense && i < v.k; i += kOfLine) __builtin_prefetch(y + i + kAheadBy);
      V acc[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) acc[i] = V{};
      for (std::int64_t p = 0; p < whole; p += kHalvesChains)
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i)
          acc[i] = fused(load<V>(x + p + i * kLanes<T>), load<V>(y + p + i * kLanes<T>), acc[i]);
      if constexpr (kRest > 0) {
#pragma GCC unroll 8
        for (int i = 0; i + 1 < kRest; ++i)
          acc[i] = fused(load<V>(x + whole + i * kLanes<T>), load<V>(y + whole + i * kLanes<T>), acc[i]);
        const bool may_pass = is_dense && (j + r) * v.matrix_column + last + kLanes<T> <= end_of_matrix;
        acc[kRest - 1] = fused(load<V>(x + last), first_lanes<S>(y + last, v.k - last, may_pass), acc[kRest - 1]);
#pragma GCC unroll 8
        for (int i = kRest; i < kVectors; ++i) acc[i] = acc[i] + V{};  // as dots() adds zeros
      }
#pragma GCC unroll 3
      for (int half = kVectors / 2; half > 0; half /= 2)
#pragma GCC unroll 4
        for (int i = 0; i < half; ++i) acc[i] = acc[i] + acc[i + half];
      rows[r] = acc[0];
    }
    V turned[kLanes<T>];
#pragma GCC unroll 16
    for (int r = 0; r < kLanes<T>; ++r) turned[r] = rows[r];
    const V sums = sums_of_rows<T>(turned);
    for (std::int64_t r = 0; r < count; ++r, out += v.out_column) *out = sums[r];
  }
}

/// Whether dots_of_columns() is there. Other products with short columns, and processors with narrow vectors, are
/// rarer.
template <class S> constexpr bool has_dots_of_columns() {
  constexpr int kVectors = kHalvesChains / kLanes<typename S::Sum>;
  return std::is_floating_point_v<typename S::Element> && std::is_same_v<typename S::Element, typename S::Sum> &&
         kVectors <= 8;
}
/// Of longer columns the sum of lanes is a small part.
constexpr std::int64_t kShortColumn = 512;

template <class S, int kRest = 0>
void multiply_short_columns(const PortableVectorProduct& v, const typename S::Sum* x) {
  if constexpr (kRest * kLanes<typename S::Sum> < kHalvesChains)
    if (v.k % kHalvesChains > kRest * kLanes<typename S::Sum>) return multiply_short_columns<S, kRest + 1>(v, x);
  dots_of_columns<S, kRest>(v, x);
}

/// All vectors with some columns, which stay in the first-level cache meanwhile, then with the next ones.
template <class S>
void multiply_by_halves(const PortableVectorProduct& v, const typename S::Sum* x, std::int64_t x_row) {
  using T = typename S::Sum;
  using E = typename S::Element;
  if constexpr (has_dots_of_columns<S>())
    if (v.vectors == 1 && v.k <= kShortColumn) return multiply_short_columns<S>(v, x);
  constexpr std::int64_t kElement = sizeof(E), kNear = (16 << 10) / kElement;
  const bool is_dense = v.matrix_column <= v.k + kLine;
  const std::int64_t ahead_of_first = is_dense ? kAhead / kElement : 0;
  const std::int64_t together = v.vectors <= 3 ? v.columns : kNear / v.k > 1 ? kNear / v.k : 1;
  for (std::int64_t begin = 0; begin < v.columns; begin += together) {
    const std::int64_t end = smaller(begin + together, v.columns);
    for (std::int64_t r = 0; r < v.vectors;) {
      const std::int64_t left = v.vectors - r, rows = left == 4 ? 2 : smaller(left, 3);
      for (std::int64_t j = begin; j < end; ++j) {
        const E* const y = static_cast<const E*>(v.matrix) + j * v.matrix_column;
        const bool may_pass = j + 1 < v.columns && v.matrix_column >= kLanes<T>;  // into the next column
        const std::int64_t ahead = r == 0 ? ahead_of_first : -1;  // later vectors find the columns in the cache
        T sums[3];
        if (rows == 1)
          dots<S, 1>(x + r * x_row, x_row, y, v.k, may_pass, ahead, sums);
        else if (rows == 2)
          dots<S, 2>(x + r * x_row, x_row, y, v.k, may_pass, ahead, sums);
        else
          dots<S, 3>(x + r * x_row, x_row, y, v.k, may_pass, ahead, sums);
        for (std::int64_t i = 0; i < rows; ++i)
          static_cast<E*>(v.out)[(r + i) * v.out_vector + j * v.out_column] = S::narrow(sums[i]);
      }
      r += rows;
    }
  }
}

template <MatmulStorage kStorage> void multiply_vector(const PortableVectorProduct& v) {
  using S = Storage<kStorage>;
  using T = typename S::Sum;
  using E = typename S::Element;
  const auto* const matrix = static_cast<const E*>(v.matrix);
  T* const sums = static_cast<T*>(v.scratch);
  T* const x = sums + kVectorColumns;
  const std::int64_t x_row = round_up(v.k, kHalvesChains);
  for (std::int64_t r = 0; r < v.vectors; ++r) {
    const E* const vector = static_cast<const E*>(v.vector) + r * v.to_next_vector;
    for (std::int64_t p = 0; p < v.k; ++p) x[r * x_row + p] = S::widen(vector[p * v.vector_stride]);
    for (std::int64_t p = v.k; p < x_row; ++p) x[r * x_row + p] = 0;
  }
  if (v.by_halves) return multiply_by_halves<S>(v, x, x_row);
  E* const out = static_cast<E*>(v.out);
  for (std::int64_t j = 0; j < v.columns; j += kVectorColumns) {
    const std::int64_t columns = smaller(kVectorColumns, v.columns - j);
    for (std::int64_t i = 0; i < columns; ++i) sums[i] = 0;
    add_rows<S>(x, matrix + j, v.matrix_k, v.k, sums, columns);
    for (std::int64_t i = 0; i < columns; ++i) out[(j + i) * v.out_column] = S::narrow(sums[i]);
  }
}

}  // namespace
}  // namespace fermata
