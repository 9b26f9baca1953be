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

/// Of two vectors side by side in memory every other element, from the first or the second one on.
template <class V, int kFirst, int... kLane>
inline V every_other(const void* from, std::integer_sequence<int, kLane...>) {
  V a, b;
  __builtin_memcpy(&a, from, sizeof(a));
  __builtin_memcpy(&b, static_cast<const char*>(from) + sizeof(a), sizeof(b));
  return __builtin_shufflevector(a, b, (kFirst + 2 * kLane)...);
}
/// Elements [begin, end) of a row, two places apart, in vectors of kCount: more than so many.
template <class T, std::int64_t kCount>
inline void copy_every_other(const T* __restrict from, std::int64_t begin, std::int64_t end, T* __restrict to) {
  typedef T V __attribute__((vector_size(kCount * static_cast<std::int64_t>(sizeof(T)))));
  constexpr std::make_integer_sequence<int, kCount> kNumbers;
  for (std::int64_t i = begin; i + kCount < end; i += kCount) {
    const V wanted = every_other<V, 0>(from + 2 * i, kNumbers);
    __builtin_memcpy(to + i, &wanted, sizeof(wanted));
  }
  // Two vectors reach one element further than those that are wanted: for the last ones, before the first.
  const V last = every_other<V, 1>(from + 2 * (end - kCount) - 1, kNumbers);
  __builtin_memcpy(to + end - kCount, &last, sizeof(last));
}
/// Elements [begin, end) of a row, `step` apart.
template <class T> inline void copy_elements(const T* __restrict from, std::int64_t step, std::int64_t begin,
                                             std::int64_t end, T* __restrict to) {
  constexpr std::int64_t kFew = 16 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t count = end - begin;
  if (step == 1) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = from[i];
  } else if (step == 2 && count > kLanes<T>) {
    copy_every_other<T, kLanes<T>>(from, begin, end, to);
  } else if (step == 2 && count > kFew) {
    copy_every_other<T, kFew>(from, begin, end, to);
  } else {
    for (std::int64_t i = begin; i < end; ++i) to[i] = from[i * step];
  }
}
/// Zeros in whole vectors, which may reach beyond `end`.
template <class T> inline void fill_zeros(T* to, std::int64_t begin, std::int64_t end) {
  const Vector<T> zeros{};
  for (; begin < end; begin += kLanes<T>) __builtin_memcpy(to + begin, &zeros, sizeof(zeros));
}

/// Row `at` of the source with its padding; places of a step apart lie side by side.
template <class T>
inline void copy_row(const DepthwisePlane<T>& p, const DepthwiseBlock& block, std::int64_t at, T* __restrict to) {
  const bool is_inside = at >= 0 && at < p.height;
  const T* const __restrict from = p.from + (is_inside ? at * p.from_row : 0);
  // What lies beyond is read for results that are not there.
  const std::int64_t step = p.step[1], needed = p.columns + (p.window[1] - 1) * p.dilation[1] / step + 1;
  for (std::int64_t first = 0; first < step; ++first, to += block.phase) {
    // Element i is number i * step + first - padding of the row, which is there in [begin, end).
    const std::int64_t shift = first - p.padding[1];
    std::int64_t begin = shift >= 0 ? 0 : (-shift + step - 1) / step, end = 0;
    if (is_inside && p.width > shift) end = (p.width - shift + step - 1) / step;
    if (end > needed) end = needed;
    if (begin > end) begin = end;
    fill_zeros(to, 0, begin);
    fill_zeros(to, end, needed);
    copy_elements(from + shift, step, begin, end, to);
  }
}

/// Vectors of kRows rows of the result, as many of each.
template <class T, std::int64_t kRows> inline void add_up(const DepthwisePlane<T>& p, const DepthwiseBlock& block,
                                                          const T* room, Vector<T> (&sums)[kDepthwiseVectors]) {
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kDepthwiseVectors; ++v) sums[v] = Vector<T>{};
  const std::int64_t apart = kRows == 1 ? kLanes<T> : p.step[0] * block.row;
  const T* tap = p.taps;
  for (std::int64_t i = 0; i < p.window[0]; ++i) {
    const T* const row = room + i * p.dilation[0] * block.row;
    std::int64_t phase = 0, column = 0;  // of tap j: j * dilation = column * step + phase
    for (std::int64_t j = 0; j < p.window[1]; ++j, ++tap) {
      const T* const from = row + phase * block.phase + column;
      column += block.columns_between, phase += block.phases_between;
      if (phase >= p.step[1]) phase -= p.step[1], ++column;
      const Vector<T> weight = *tap - Vector<T>{};
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < kDepthwiseVectors; ++v) {
        Vector<T> elements;
        __builtin_memcpy(&elements, from + v * apart, sizeof(elements));
        sums[v] += weight * elements;
      }
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
