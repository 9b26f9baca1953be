// The body of convolution_depthwise_*.cpp. The includer defines FERMATA_VECTOR_BYTES. Everything here has internal
// linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

/// As many bits of f32, and of bf16.
typedef std::uint32_t Bits __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
typedef std::uint16_t HalfBits __attribute__((vector_size(FERMATA_VECTOR_BYTES / 2)));

template <class V, class T> inline V load(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
template <class V, class T> inline void store(T* to, V v) { __builtin_memcpy(to, &v, sizeof(v)); }

/// Of two vectors side by side in memory every other element, from the first or the second one on.
template <class V, int kFirst, int... kLane>
inline V every_other(const void* from, std::integer_sequence<int, kLane...>) {
  const V a = load<V>(static_cast<const char*>(from)), b = load<V>(static_cast<const char*>(from) + sizeof(V));
  return __builtin_shufflevector(a, b, (kFirst + 2 * kLane)...);
}
/// Elements [begin, end) of a row, two places apart, in vectors of kCount: more than so many.
template <class T, std::int64_t kCount>
inline void copy_every_other(const T* __restrict from, std::int64_t begin, std::int64_t end, T* __restrict to) {
  typedef T V __attribute__((vector_size(kCount * static_cast<std::int64_t>(sizeof(T)))));
  constexpr std::make_integer_sequence<int, kCount> kNumbers;
  for (std::int64_t i = begin; i + kCount < end; i += kCount) store(to + i, every_other<V, 0>(from + 2 * i, kNumbers));
  // Two vectors reach one element further than those that are wanted: for the last ones, before the first.
  store(to + end - kCount, every_other<V, 1>(from + 2 * (end - kCount) - 1, kNumbers));
}
/// Elements [begin, end) of a row in vectors of kCount: at least so many.
template <class T, std::int64_t kCount>
inline void copy_adjacent(const T* __restrict from, std::int64_t begin, std::int64_t end, T* __restrict to) {
  typedef T V __attribute__((vector_size(kCount * static_cast<std::int64_t>(sizeof(T)))));
  for (std::int64_t i = begin; i + kCount < end; i += kCount) store(to + i, load<V>(from + i));
  store(to + end - kCount, load<V>(from + end - kCount));
}
/// Elements [begin, end) of a row, `step` apart.
template <class T> inline void copy_elements(const T* __restrict from, std::int64_t step, std::int64_t begin,
                                             std::int64_t end, T* __restrict to) {
  constexpr std::int64_t kFew = 16 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t count = end - begin;
  if (step == 1 && count >= kLanes<T>) {
    copy_adjacent<T, kLanes<T>>(from, begin, end, to);
  } else if (step == 1 && count >= kFew) {
    copy_adjacent<T, kFew>(from, begin, end, to);
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
  for (; begin < end; begin += kLanes<T>) store(to + begin, Vector<T>{});
}

/// Asks for a row that will be read some rows later: planes mostly follow each other in memory, and processors by
/// themselves stop at the end of a page.
template <class T> inline void ask_for(const T* row, std::int64_t count) {
  constexpr std::int64_t kAheadBytes = 4096, kLine = 64;
  const char* const from = reinterpret_cast<const char*>(row) + kAheadBytes;
  for (std::int64_t at = 0; at < count * static_cast<std::int64_t>(sizeof(T)); at += kLine)
    __builtin_prefetch(from + at);
}

/// `count` rows of a plane from number `first` on, with their padding; places of a step apart lie side by side.
template <class T> void copy_rows(const DepthwisePlane<T>& p, const DepthwiseBlock& block, std::int64_t first,
                                  std::int64_t count, T* __restrict to) {
  const std::int64_t step = p.step[1];
  // What lies beyond is read for results that are not there.
  const std::int64_t needed = p.columns + (p.window[1] - 1) * p.dilation[1] / step + 1;
  for (std::int64_t phase = 0; phase < step; ++phase, to += block.phase) {
    // Element i is number i * step + phase - padding of the row, which is there in [begin, end).
    const std::int64_t shift = phase - p.padding[1];
    std::int64_t begin = shift >= 0 ? 0 : (-shift + step - 1) / step;
    std::int64_t end = p.width > shift ? (p.width - shift + step - 1) / step : 0;
    if (end > needed) end = needed;
    if (begin > end) begin = end;
    T* row = to;
    for (std::int64_t at = first; at < first + count; ++at, row += block.row)
      if (at >= 0 && at < p.height) {
        if (phase == 0) ask_for(p.from + at * p.from_row, p.width);
        fill_zeros(row, 0, begin);
        fill_zeros(row, end, needed);
        copy_elements(p.from + at * p.from_row + shift, step, begin, end, row);
      } else {
        fill_zeros(row, 0, needed);
      }
  }
}

/// kRows rows of the result from `row` on, kAcross vectors of each from `column` on, `next` elements apart.
template <class T, std::int64_t kRows, std::int64_t kAcross>
inline void store_sums(const DepthwisePlane<T>& p, const Vector<T>* sums, std::int64_t next, std::int64_t row,
                       std::int64_t column) {
  T* to = p.to + row * p.columns + column;
  const T* const end = p.to + p.rows * p.columns;
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kRows; ++r, to += p.columns) {
    if (to >= end) return;
    // Of a row that is shorter than a vector, what comes after it is written later.
    if (end - to >= kLanes<T>) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < kAcross; ++v) store(to + v * next, sums[r * kAcross + v]);
    } else {
      T last[kLanes<T>];
      store(last, sums[r * kAcross]);
      for (std::int64_t l = 0; l < end - to; ++l) to[l] = last[l];
    }
  }
}

/// kRows rows of the result, `apart` elements apart in what was copied, and kAcross vectors of each, `next` elements
/// apart.
template <class T, std::int64_t kRows, std::int64_t kAcross>
inline void add_up(const DepthwisePlane<T>& p, const std::int64_t* offsets, const T* from, std::int64_t apart,
                   std::int64_t next, std::int64_t row, std::int64_t column) {
  constexpr std::int64_t kVectors = kRows * kAcross;
  Vector<T> sums[kVectors];
#pragma GCC unroll 8
  for (std::int64_t v = 0; v < kVectors; ++v) sums[v] = Vector<T>{};
  const std::int64_t taps = p.window[0] * p.window[1];
  const T* const tap = p.taps;
  for (std::int64_t t = 0; t < taps; ++t) {
    const T* const at = from + offsets[t];
    const Vector<T> weight = tap[t] - Vector<T>{};
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kVectors; ++v)
      sums[v] += weight * load<Vector<T>>(at + v / kAcross * apart + v % kAcross * next);
  }
  store_sums<T, kRows, kAcross>(p, sums, next, row, column);
}

/// The same one vector across for filters of kSide places in either direction, whose products with what one load reads
/// go to the sums of several rows.
template <class T, std::int64_t kSide, std::int64_t kStep, std::int64_t kRows>
inline void add_up_square(const DepthwisePlane<T>& p, const DepthwiseBlock& block, const std::int64_t* offsets,
                          const T* from, std::int64_t row, std::int64_t column) {
  Vector<T> taps[kSide][kSide], sums[kRows];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kSide; ++i)
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kSide; ++j) taps[i][j] = p.taps[i * kSide + j] - Vector<T>{};
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < kRows; ++r) sums[r] = Vector<T>{};
#pragma GCC unroll 24
  for (std::int64_t y = 0; y < (kRows - 1) * kStep + kSide; ++y, from += block.row)
#pragma GCC unroll 8
    for (std::int64_t j = 0; j < kSide; ++j) {
      const auto x = load<Vector<T>>(from + offsets[j]);
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < kRows; ++r)
        if (const std::int64_t i = y - r * kStep; i >= 0 && i < kSide) sums[r] += taps[i][j] * x;
    }
  store_sums<T, kRows, 1>(p, sums, 0, row, column);
}

template <class T, std::int64_t kRows, std::int64_t kAcross>
void run_rows(const DepthwisePlane<T>& p, const DepthwiseBlock& block, const std::int64_t* offsets, T* room) {
  const std::int64_t apart = p.step[0] * block.row;
  for (std::int64_t first = 0; first < p.rows; first += block.results) {
    const std::int64_t results = p.rows - first < block.results ? p.rows - first : block.results;
    const std::int64_t needed = block.rows - (block.results - (results + kRows - 1) / kRows * kRows) * p.step[0];
    copy_rows(p, block, first * p.step[0] - p.padding[0], needed, room);
    for (std::int64_t row = 0; row < results; row += kRows) {
      const T* const from = room + row * apart;
      // The last vectors end with the row where there are so many columns.
      for (std::int64_t column = 0; column < p.columns;) {
        const std::int64_t left = p.columns - column;
        if (left >= kAcross * kLanes<T>) {
          add_up<T, kRows, kAcross>(p, offsets, from + column, apart, kLanes<T>, first + row, column);
          column += kAcross * kLanes<T>;
        } else if (kAcross == 2 && left > kLanes<T>) {
          add_up<T, kRows, kAcross>(p, offsets, from + column, apart, left - kLanes<T>, first + row, column);
          column = p.columns;
        } else {
          if (left < kLanes<T> && p.columns >= kLanes<T>) column = p.columns - kLanes<T>;
          add_up<T, kRows, 1>(p, offsets, from + column, apart, 0, first + row, column);
          column += kLanes<T>;
        }
      }
    }
  }
}
/// The same by add_up_square().
template <class T, std::int64_t kSide, std::int64_t kStep>
void run_squares(const DepthwisePlane<T>& p, const DepthwiseBlock& block, const std::int64_t* offsets, T* room) {
  constexpr std::int64_t kRows = kDepthwiseSums;
  for (std::int64_t first = 0; first < p.rows; first += block.results) {
    const std::int64_t results = p.rows - first < block.results ? p.rows - first : block.results;
    const std::int64_t needed = block.rows - (block.results - (results + kRows - 1) / kRows * kRows) * kStep;
    copy_rows(p, block, first * kStep - p.padding[0], needed, room);
    for (std::int64_t row = 0; row < results; row += kRows)
      for (std::int64_t column = 0; column < p.columns; column += kLanes<T>) {
        if (p.columns - column < kLanes<T> && p.columns >= kLanes<T>) column = p.columns - kLanes<T>;
        add_up_square<T, kSide, kStep, kRows>(p, block, offsets, room + row * kStep * block.row + column, first + row,
                                              column);
      }
  }
}
/// Whether the filter is such a square; other ones, and rows of few, are rarer.
template <class T, std::int64_t kSide, std::int64_t kStep> bool is_square(const DepthwisePlane<T>& p) {
  return p.window[0] == kSide && p.window[1] == kSide && p.dilation[0] == 1 && p.step[0] == kStep;
}

template <class T>
void run_plane(const DepthwisePlane<T>& p, const DepthwiseBlock& block, const std::int64_t* offsets, T* room) {
  if constexpr (sizeof(T) == 4 && FERMATA_VECTOR_BYTES > 16) {
    constexpr std::int64_t kFewRows = 5;
    if (p.rows >= kFewRows) {
      if (is_square<T, 3, 1>(p)) return run_squares<T, 3, 1>(p, block, offsets, room);
      if (is_square<T, 3, 2>(p)) return run_squares<T, 3, 2>(p, block, offsets, room);
      if (is_square<T, 5, 1>(p)) return run_squares<T, 5, 1>(p, block, offsets, room);
      if (is_square<T, 5, 2>(p)) return run_squares<T, 5, 2>(p, block, offsets, room);
    }
  }
  if (p.rows == 1)
    run_rows<T, 1, kDepthwiseSums>(p, block, offsets, room);
  else if (p.columns <= kLanes<T>)
    run_rows<T, kDepthwiseSums, 1>(p, block, offsets, room);
  else
    run_rows<T, kDepthwiseSums / 2, 2>(p, block, offsets, room);
}

/// GCC takes vectors of 64 bytes apart for either conversion.
inline Bits widened(HalfBits x) {
#if defined(__AVX512F__)
  return reinterpret_cast<Bits>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(x)));
#else
  return __builtin_convertvector(x, Bits);
#endif
}
inline HalfBits low_halves(Bits x) {
#if defined(__AVX512F__)
  return reinterpret_cast<HalfBits>(_mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(x)));
#else
  return __builtin_convertvector(x, HalfBits);
#endif
}
/// Elements of images as sums have them, f32, and sums as elements: bf16 is rounded to nearest even.
template <class S> inline S load_sum(const float* from) { return load<S>(from); }
template <class S> inline S load_sum(const std::uint16_t* from) {
  if constexpr (sizeof(S) == sizeof(float)) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(*from) << 16);
  } else {
    return reinterpret_cast<S>(widened(load<HalfBits>(from)) << 16);
  }
}
/// sum + a b. Of f32 both are rounded, so that bits are the same on every processor; sums of bf16 are rounded once.
template <class E> inline Vector<float> with_product(Vector<float> sum, Vector<float> a, Vector<float> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(E) == 2) return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  if constexpr (sizeof(E) == 2) return _mm256_fmadd_ps(a, b, sum);
#endif
  return sum + a * b;
}
template <class S> inline void store_sum(float* to, S sum) { store(to, sum); }
template <class S> inline void store_sum(std::uint16_t* to, S sum) {
  if constexpr (sizeof(S) == sizeof(float)) {
    const auto bits = __builtin_bit_cast(std::uint32_t, sum);
    *to = static_cast<std::uint16_t>(sum != sum ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  } else {
    const Bits bits = reinterpret_cast<Bits>(sum), is_nan = reinterpret_cast<Bits>(sum != sum);
    const Bits rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    store(to, low_halves((rounded & ~is_nan) | (quiet & is_nan)));
  }
}

/// The channels of kPlaces places from `column` on, whose taps `from` has: those of a place side by side.
template <class E, std::int64_t kPlaces>
inline void add_up_channels(const DepthwiseImage<E>& p, const E* const* from, E* to) {
  using T = float;
  const std::int64_t taps = p.window[0] * p.window[1];
  std::int64_t c = 0;
  while (c < p.channels) {
    if (p.channels < kLanes<T>) {  // one by one
      for (std::int64_t place = 0; place < kPlaces; ++place) {
        T sum{};
        for (std::int64_t t = 0; t < taps; ++t)
          sum += p.taps[t * p.channels + c] * load_sum<T>(from[t * kPlaces + place] + c);
        store_sum(to + place * p.channels + c, sum);
      }
      ++c;
      continue;
    }
    if (c + kLanes < T >> p.channels) c = p.channels - kLanes<T>;  // the last ones once more
    Vector<T> sums[kPlaces];
#pragma GCC unroll 4
    for (std::int64_t place = 0; place < kPlaces; ++place) sums[place] = Vector<T>{};
    const E* const* at = from;
    for (const T* tap = p.taps + c; at != from + taps * kPlaces; tap += p.channels, at += kPlaces) {
      const auto weight = load<Vector<T>>(tap);
#pragma GCC unroll 4
      for (std::int64_t place = 0; place < kPlaces; ++place)
        sums[place] = with_product<E>(sums[place], weight, load_sum<Vector<T>>(at[place] + c));
    }
#pragma GCC unroll 4
    for (std::int64_t place = 0; place < kPlaces; ++place) store_sum(to + place * p.channels + c, sums[place]);
    c += kLanes<T>;
  }
}

template <class E, std::int64_t kPlaces>
inline void run_places(const DepthwiseImage<E>& p, std::int64_t row, std::int64_t column, const E** room) {
  const E** at = room;
  for (std::int64_t i = 0; i < p.window[0]; ++i) {
    const std::int64_t y = row * p.step[0] + i * p.dilation[0] - p.padding[0];
    const E* const line = p.from + y * p.width * p.channels;
    for (std::int64_t j = 0; j < p.window[1]; ++j)
      for (std::int64_t place = 0; place < kPlaces; ++place) {
        const std::int64_t x = (column + place) * p.step[1] + j * p.dilation[1] - p.padding[1];
        const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width;
        *at++ = inside ? line + x * p.channels : p.zeros;
      }
  }
  add_up_channels<E, kPlaces>(p, room, p.to + (row * p.columns + column) * p.channels);
}
/// Channels, whole vectors of them but perhaps for the last.
struct Channels {
  std::int64_t begin, end;
};
/// kPlaces places from `column` on of a filter of kWidth adjacent elements across: each load is for several of them.
/// kInner: all taps lie within rows of the image.
template <class E, std::int64_t kWidth, std::int64_t kStep, std::int64_t kPlaces, bool kInner>
inline void run_adjacent_places(const DepthwiseImage<E>& p, Channels channels, std::int64_t row, std::int64_t column) {
  using T = float;
  constexpr std::int64_t kAcross = (kPlaces - 1) * kStep + kWidth;
  const std::int64_t from = column * kStep - p.padding[1];
  E* const to = p.to + (row * p.columns + column) * p.channels;
  for (std::int64_t c = channels.begin; c < channels.end; c += kLanes<T>) {
    if (p.channels - c < kLanes<T>) c = p.channels - kLanes<T>;  // the last ones once more
    Vector<T> sums[kPlaces];
#pragma GCC unroll 4
    for (std::int64_t place = 0; place < kPlaces; ++place) sums[place] = Vector<T>{};
    const T* tap = p.taps + c;
    for (std::int64_t i = 0; i < p.window[0]; ++i) {
      const std::int64_t y = row * p.step[0] + i * p.dilation[0] - p.padding[0];
      const bool inside = y >= 0 && y < p.height;
      const E* at = (inside ? p.from + (y * p.width + from) * p.channels : p.zeros) + c;
      const std::int64_t next = inside ? p.channels : 0;
      Vector<T> taps[kWidth];
#pragma GCC unroll 8
      for (std::int64_t j = 0; j < kWidth; ++j, tap += p.channels) taps[j] = load<Vector<T>>(tap);
#pragma GCC unroll 16
      for (std::int64_t x = 0; x < kAcross; ++x, at += next) {
        const bool is_there = kInner || (from + x >= 0 && from + x < p.width);
        const auto here = load_sum<Vector<T>>(is_there ? at : p.zeros + c);
#pragma GCC unroll 4
        for (std::int64_t place = 0; place < kPlaces; ++place)
          if (const std::int64_t j = x - place * kStep; j >= 0 && j < kWidth)
            sums[place] = with_product<E>(sums[place], taps[j], here);
      }
    }
#pragma GCC unroll 4
    for (std::int64_t place = 0; place < kPlaces; ++place) store_sum(to + place * p.channels + c, sums[place]);
  }
}
template <class E, std::int64_t kWidth, std::int64_t kStep>
void run_adjacent_row(const DepthwiseImage<E>& p, std::int64_t row) {
  using T = float;
  constexpr std::int64_t kPlaces = kDepthwisePlaces, kAcross = (kPlaces - 1) * kStep + kWidth;
  // What some places read, and the taps of as many channels, stay in the L1 cache.
  constexpr std::int64_t kBytes = 24 << 10, kOfChannel = (kAcross + kWidth) * static_cast<std::int64_t>(sizeof(T));
  std::int64_t block = kBytes / (kOfChannel * p.window[0]) / kLanes<T> * kLanes<T>;
  if (block < kLanes<T>) block = kLanes<T>;
  for (Channels c{0, 0}; c.begin < p.channels; c.begin = c.end) {
    c.end = c.begin + block < p.channels ? c.begin + block : p.channels;
    std::int64_t column = 0;
    for (; column + kPlaces <= p.columns; column += kPlaces) {
      const std::int64_t from = column * kStep - p.padding[1];
      if (from >= 0 && from + kAcross <= p.width)
        run_adjacent_places<E, kWidth, kStep, kPlaces, true>(p, c, row, column);
      else
        run_adjacent_places<E, kWidth, kStep, kPlaces, false>(p, c, row, column);
    }
    for (; column < p.columns; ++column) run_adjacent_places<E, kWidth, kStep, 1, false>(p, c, row, column);
  }
}
/// Whether a filter has kWidth adjacent elements across. Those of narrow vectors are not worth their code.
template <class E, std::int64_t kWidth, std::int64_t kStep> bool is_adjacent(const DepthwiseImage<E>& p) {
  return FERMATA_VECTOR_BYTES > 16 && p.window[1] == kWidth && p.step[1] == kStep && p.dilation[1] == 1 &&
         p.channels >= kLanes<float>;
}
template <class E> void run_row(const DepthwiseImage<E>& p, std::int64_t row, const E** room) {
  if (is_adjacent<E, 3, 1>(p)) return run_adjacent_row<E, 3, 1>(p, row);
  if (is_adjacent<E, 3, 2>(p)) return run_adjacent_row<E, 3, 2>(p, row);
  if (is_adjacent<E, 5, 1>(p)) return run_adjacent_row<E, 5, 1>(p, row);
  if (is_adjacent<E, 5, 2>(p)) return run_adjacent_row<E, 5, 2>(p, row);
  if (is_adjacent<E, 7, 1>(p)) return run_adjacent_row<E, 7, 1>(p, row);
  std::int64_t column = 0;
  for (; column + kDepthwisePlaces <= p.columns; column += kDepthwisePlaces)
    run_places<E, kDepthwisePlaces>(p, row, column, room);
  for (; column < p.columns; ++column) run_places<E, 1>(p, row, column, room);
}

#ifdef FERMATA_INFERENCE_ONLY  // libfermata_run has those of f32 only
constexpr DepthwiseRow<std::uint16_t> kRowBf16 = nullptr;
#else
constexpr DepthwiseRow<std::uint16_t> kRowBf16 = &run_row<std::uint16_t>;
#endif
constexpr DepthwiseKernels kKernels{&run_plane<float>, &run_plane<double>, &run_row<float>, kRowBf16};

}  // namespace
}  // namespace fermata
