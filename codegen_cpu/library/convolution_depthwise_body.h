// The body of convolution_depthwise_*.cpp. The includer defines FERMATA_VECTOR_BYTES. Everything here has internal
// linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>
#include <utility>

#include "codegen_cpu/library/convolution_depthwise_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

template <class T> struct VectorOf;
template <> struct VectorOf<float> { typedef float type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <> struct VectorOf<double> { typedef double type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <class T> using Vector = typename VectorOf<T>::type;
template <class T> constexpr std::int64_t kLanes = FERMATA_VECTOR_BYTES / static_cast<std::int64_t>(sizeof(T));
static_assert(kLanes<float> <= DepthwiseBlock::kWidest);

template <class T, int... kLane>
inline Vector<T> every_other(Vector<T> a, Vector<T> b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, (2 * kLane)...);
}
/// Elements [begin, end) of a row, `step` apart.
template <class T> inline void copy_elements(const T* __restrict from, std::int64_t step, std::int64_t begin,
                                             std::int64_t end, T* __restrict to) {
  std::int64_t i = begin;
  if (step == 1)
    for (; i < end; ++i) to[i] = from[i];
  if (step == 2)  // two vectors reach one element further than those that are wanted
    for (; i + kLanes<T> < end; i += kLanes<T>) {
      Vector<T> pair[2];
      __builtin_memcpy(pair, from + 2 * i, sizeof(pair));
      const Vector<T> wanted = every_other<T>(pair[0], pair[1], std::make_integer_sequence<int, kLanes<T>>{});
      __builtin_memcpy(to + i, &wanted, sizeof(wanted));
    }
  for (; i < end; ++i) to[i] = from[i * step];
}

/// Row `at` of the source with its padding; places of a step apart lie side by side.
template <class T>
inline void copy_row(const DepthwisePlane<T>& p, const DepthwiseBlock& block, std::int64_t at, T* __restrict to) {
  const bool is_inside = at >= 0 && at < p.height;
  const T* const __restrict from = p.from + (is_inside ? at * p.from_row : 0);
  const std::int64_t step = p.step[1];
  for (std::int64_t first = 0; first < step; ++first, to += block.phase) {
    // Element i is number i * step + first - padding of the row, which is there in [begin, end).
    const std::int64_t shift = first - p.padding[1];
    std::int64_t begin = shift >= 0 ? 0 : (-shift + step - 1) / step, end = 0;
    if (is_inside && p.width > shift) end = (p.width - shift + step - 1) / step;
    if (end > block.phase) end = block.phase;
    if (begin > end) begin = end;
    for (std::int64_t i = 0; i < begin; ++i) to[i] = 0;
    copy_elements(from + shift, step, begin, end, to);
    for (std::int64_t i = end; i < block.phase; ++i) to[i] = 0;
  }
}

/// Vectors of kRows rows of the result, as many of each.
template <class T, std::int64_t kRows> inline void add_up(const DepthwisePlane<T>& p, const DepthwiseBlock& block,
                                                          const T* room, Vector<T> (&sums)[kDepthwiseVectors]) {
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kDepthwiseVectors; ++v) sums[v] = Vector<T>{};
  const std::int64_t apart = kRows == 1 ? kLanes<T> : p.step[0] * block.row;
  const T* tap = p.taps;
  for (std::int64_t i = 0; i < p.window[0]; ++i)
    for (std::int64_t j = 0; j < p.window[1]; ++j, ++tap) {
      const std::int64_t place = j * p.dilation[1];
      const T* const from = room + i * p.dilation[0] * block.row + place % p.step[1] * block.phase + place / p.step[1];
      const Vector<T> weight = *tap - Vector<T>{};
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kDepthwiseVectors; ++v) {
        Vector<T> elements;
        __builtin_memcpy(&elements, from + v * apart, sizeof(elements));
        sums[v] += weight * elements;
      }
    }
}

template <class T, std::int64_t kRows> void run_rows(const DepthwisePlane<T>& p, T* room) {
  const DepthwiseBlock block(p);
  constexpr std::int64_t kColumns = kDepthwiseVectors / kRows * kLanes<T>;
  for (std::int64_t first = 0; first < p.rows; first += kRows) {
    for (std::int64_t r = 0; r < block.rows; ++r)
      copy_row(p, block, first * p.step[0] - p.padding[0] + r, room + r * block.row);
    for (std::int64_t next = 0; next < p.columns; next += kColumns) {
      // The last ones are made from whole vectors where there are so many columns.
      const std::int64_t column = next + kColumns > p.columns && p.columns >= kColumns ? p.columns - kColumns : next;
      Vector<T> sums[kDepthwiseVectors];
      add_up<T, kRows>(p, block, room + column, sums);
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kDepthwiseVectors; ++v) {
        const std::int64_t row = first + (kRows == 1 ? 0 : v), at = column + (kRows == 1 ? v * kLanes<T> : 0);
        if (row >= p.rows) break;
        T* const to = p.to + row * p.columns + at;
        if (at + kLanes<T> <= p.columns)
          __builtin_memcpy(to, &sums[v], sizeof(Vector<T>));
        else
          for (std::int64_t l = 0; l < p.columns - at; ++l) to[l] = sums[v][l];
      }
    }
  }
}
template <class T> void run_plane(const DepthwisePlane<T>& p, T* room) {
  if (p.rows == 1)
    run_rows<T, 1>(p, room);
  else
    run_rows<T, kDepthwiseVectors>(p, room);
}

constexpr DepthwiseKernels kKernels{&run_plane<float>, &run_plane<double>};

}  // namespace
}  // namespace fermata
