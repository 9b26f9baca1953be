// The body of transpose_*.cpp. The includer defines FERMATA_VECTOR_BYTES.
//
// Squares of whole vectors are turned in registers: where a vector is a cache line, each line is read once and written
// once, whatever the strides, though strides of powers of two leave it no place to wait in the first-level cache.
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/transpose.h"
#include "codegen_cpu/irregular/transpose_in_registers.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

/// Squares of more vectors than this do not fit in registers.
constexpr int kMostSide = FERMATA_VECTOR_BYTES == 64 ? 16 : 8;

template <class T> struct Square {
  static constexpr int kSide = FERMATA_VECTOR_BYTES / static_cast<int>(sizeof(T)) < kMostSide
                                   ? FERMATA_VECTOR_BYTES / static_cast<int>(sizeof(T))
                                   : kMostSide;
  static constexpr int kBytes = kSide * static_cast<int>(sizeof(T));
  typedef T Line __attribute__((vector_size(kBytes)));
};

template <class V> inline void stream_line(void* to, V line) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 16) {
    _mm_stream_si128(static_cast<__m128i*>(to), reinterpret_cast<__m128i>(line));
    return;
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) {
    _mm256_stream_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(line));
    return;
  }
#endif
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    _mm512_stream_si512(static_cast<__m512i*>(to), reinterpret_cast<__m512i>(line));
    return;
  }
#endif
  __builtin_memcpy(to, &line, sizeof(V));
}

template <class T, bool kStreams>
inline void turn_square(T* to, std::int64_t to_line, const T* from, std::int64_t from_line) {
  using S = Square<T>;
  typename S::Line square[S::kSide];
#pragma GCC unroll 16
  for (int c = 0; c < S::kSide; ++c) __builtin_memcpy(&square[c], from + c * from_line, S::kBytes);
  transpose_in_registers(square);
#pragma GCC unroll 16
  for (int c = 0; c < S::kSide; ++c)
    if constexpr (kStreams)
      stream_line(to + c * to_line, square[c]);
    else
      __builtin_memcpy(to + c * to_line, &square[c], S::kBytes);
}

/// The first `count` elements of a vector, others zero.
template <class V, class T> inline V load_few(const T* from, int count) {
  V few{};
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const auto mask = (std::uint64_t{1} << count) - 1;
  if constexpr (sizeof(V) == 64) {
    if constexpr (sizeof(T) == 4)
      return reinterpret_cast<V>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), from));
    if constexpr (sizeof(T) == 8)
      return reinterpret_cast<V>(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), from));
  } else if constexpr (sizeof(V) == 32) {
    if constexpr (sizeof(T) == 2)
      return reinterpret_cast<V>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), from));
    if constexpr (sizeof(T) == 4)
      return reinterpret_cast<V>(_mm256_maskz_loadu_epi32(static_cast<__mmask8>(mask), from));
    if constexpr (sizeof(T) == 8)
      return reinterpret_cast<V>(_mm256_maskz_loadu_epi64(static_cast<__mmask8>(mask), from));
  } else if constexpr (sizeof(V) == 16) {
    if constexpr (sizeof(T) == 1) return reinterpret_cast<V>(_mm_maskz_loadu_epi8(static_cast<__mmask16>(mask), from));
    if constexpr (sizeof(T) == 2) return reinterpret_cast<V>(_mm_maskz_loadu_epi16(static_cast<__mmask8>(mask), from));
    if constexpr (sizeof(T) == 4) return reinterpret_cast<V>(_mm_maskz_loadu_epi32(static_cast<__mmask8>(mask), from));
    if constexpr (sizeof(T) == 8) return reinterpret_cast<V>(_mm_maskz_loadu_epi64(static_cast<__mmask8>(mask), from));
  }
#elif defined(__AVX2__)
  static constexpr int kOnes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  if constexpr (sizeof(T) >= 4 && sizeof(V) >= 16) {
    const int* const mask = kOnes + 8 - count * static_cast<int>(sizeof(T) / 4);
    if constexpr (sizeof(V) == 32)
      return reinterpret_cast<V>(_mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                                                       _mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask))));
    else
      return reinterpret_cast<V>(_mm_maskload_epi32(reinterpret_cast<const int*>(from),
                                                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask))));
  }
#endif
  for (int i = 0; i < count; ++i) few[i] = from[i];
  return few;
}

template <class V, class Half, int... kLane> inline V joined(Half a, Half b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, kLane...);
}

/// Parts of kPart elements from lines that are `step` lines apart, side by side; of each part only `few` elements are
/// read, unless kWhole.
template <class T, int kPart, int kParts, bool kWhole> struct Parts {
  typedef T Vector __attribute__((vector_size(kPart * kParts * sizeof(T))));
  static inline Vector load(const T* from, std::int64_t line, int step, int few) {
    if constexpr (kParts > 1) {
      using Half = Parts<T, kPart, kParts / 2, kWhole>;
      return joined<Vector>(Half::load(from, line, step, few),
                            Half::load(from + kParts / 2 * step * line, line, step, few),
                            std::make_integer_sequence<int, kPart * kParts>());
    } else if constexpr (kWhole) {
      Vector whole;
      __builtin_memcpy(&whole, from, sizeof(whole));
      return whole;
    } else {
      return load_few<Vector>(from, few);
    }
  }
};

/// The smallest number of lines that are turned together for so many of them: parts are vectors of 16 bytes at least.
template <class T> constexpr int kLeastPart = 16 / static_cast<int>(sizeof(T)) < Square<T>::kSide
                                                  ? 16 / static_cast<int>(sizeof(T))
                                                  : Square<T>::kSide;

/// Planes of so few lines that lie so densely are read and written as they lie: whole vectors, from which each line
/// takes every kStep-th element.
constexpr int kMostDense = FERMATA_VECTOR_BYTES == 64 ? 6 : 4;

/// Bytes between what is read and what is prefetched: planes that follow each other are often turned in pieces.
constexpr int kAhead = 2048;

/// Lane l of the result is element kFrom(l) of `vectors` side by side.
template <auto kFrom, int kVectors, class V, int... kLane>
inline V lanes_from(const V (&vectors)[kVectors], std::integer_sequence<int, kLane...>) {
  constexpr int kSide = sizeof...(kLane);
  V lanes = __builtin_shufflevector(vectors[0], vectors[1], (kFrom(kLane) < 2 * kSide ? kFrom(kLane) : 0)...);
  const auto add = [&]<int kVector>(std::integral_constant<int, kVector>) {
    lanes = __builtin_shufflevector(lanes, vectors[kVector],
                                    (kFrom(kLane) / kSide == kVector ? kSide + kFrom(kLane) % kSide : kLane)...);
  };
  [&]<int... v>(std::integer_sequence<int, v...>) { (add(std::integral_constant<int, v + 2>()), ...); }
  (std::make_integer_sequence<int, kVectors - 2>());
  return lanes;
}

/// Line `kLine` of kStep lines that lie element by element, and the other way: vector `kVector` of what they are then.
template <int kStep, int kLine> struct EveryStep {
  constexpr int operator()(int lane) const { return lane * kStep + kLine; }
};
template <int kStep, int kSide, int kVector> struct InTurns {
  constexpr int operator()(int lane) const {
    const int element = kVector * kSide + lane;
    return element % kStep * kSide + element / kStep;
  }
};

/// Lines from i0 on of a plane whose columns are kStep elements apart; returns the first column that is not done.
template <class T, int kStep> std::int64_t turn_dense_lines(const TransposedPlane& p, std::int64_t i0) {
  using Line = typename Square<T>::Line;
  constexpr int kSide = Square<T>::kSide;
  constexpr std::make_integer_sequence<int, kSide> kLanes;
  const auto few = static_cast<int>(p.lines - i0);
  auto* const to = static_cast<T*>(p.to) + i0 * p.to_line;
  const auto* const from = static_cast<const T*>(p.from) + i0;
  const std::int64_t end = (p.columns - 1) * kStep + few;
  std::int64_t j = 0;
  for (; (j + kSide) * kStep <= end; j += kSide) {
    Line vectors[kStep];
#pragma GCC unroll 8
    for (int v = 0; v < kStep; ++v) {
      __builtin_memcpy(&vectors[v], from + j * kStep + v * kSide, sizeof(Line));
      __builtin_prefetch(reinterpret_cast<const char*>(from + j * kStep + v * kSide) + kAhead);
    }
    const auto turn = [&]<int kLine>(std::integral_constant<int, kLine>) {
      if (kLine >= few) return;
      const Line line = lanes_from<EveryStep<kStep, kLine>{}>(vectors, kLanes);
      __builtin_memcpy(to + kLine * p.to_line + j, &line, sizeof(line));
    };
    [&]<int... k>(std::integer_sequence<int, k...>) { (turn(std::integral_constant<int, k>()), ...); }
    (std::make_integer_sequence<int, kStep>());
  }
  return j;
}

/// The first `lines` lines, whole vectors of them, of a plane of kStep columns whose lines follow each other.
template <class T, int kStep> void turn_dense_columns(const TransposedPlane& p, std::int64_t lines) {
  using Line = typename Square<T>::Line;
  constexpr int kSide = Square<T>::kSide;
  constexpr std::make_integer_sequence<int, kSide> kLanes;
  auto* const to = static_cast<T*>(p.to);
  const auto* const from = static_cast<const T*>(p.from);
  for (std::int64_t i = 0; i < lines; i += kSide) {
    Line columns[kStep];
#pragma GCC unroll 8
    for (int k = 0; k < kStep; ++k) __builtin_memcpy(&columns[k], from + k * p.from_line + i, sizeof(Line));
    const auto put = [&]<int kVector>(std::integral_constant<int, kVector>) {
      const Line line = lanes_from<InTurns<kStep, kSide, kVector>{}>(columns, kLanes);
      __builtin_memcpy(to + i * kStep + kVector * kSide, &line, sizeof(line));
    };
    [&]<int... v>(std::integer_sequence<int, v...>) { (put(std::integral_constant<int, v>()), ...); }
    (std::make_integer_sequence<int, kStep>());
  }
}

/// Calls body(the constant `step`) if it is from 2 to kMostDense.
template <int kStep = 2, class Body> inline bool with_dense_step(std::int64_t step, Body body) {
  if constexpr (kStep <= kMostDense) {
    if (step != kStep) return with_dense_step<kStep + 1>(step, body);
    body(std::integral_constant<int, kStep>());
    return true;
  } else {
    return false;
  }
}

/// At most kPart lines of a square.
template <class T, int kPart, bool kWhole>
inline void turn_part(T* to, std::int64_t to_line, const T* from, std::int64_t from_line, int few) {
  typename Square<T>::Line square[kPart];
#pragma GCC unroll 16
  for (int k = 0; k < kPart; ++k)
    square[k] = Parts<T, kPart, Square<T>::kSide / kPart, kWhole>::load(from + k * from_line, from_line, kPart, few);
  transpose_in_registers(square);
#pragma GCC unroll 16
  for (int k = 0; k < kPart; ++k)
    if (k < few) __builtin_memcpy(to + k * to_line, &square[k], Square<T>::kBytes);
}

/// Lines from i0 on, at most kPart; returns the first column that is not done. What a vector reads beyond its lines is
/// part of the plane, too, but for the last columns: loads under a mask of what no cache holds took six times as long
/// (Zen 5).
template <class T, int kPart> std::int64_t turn_few_lines(const TransposedPlane& p, std::int64_t i0) {
  constexpr int kSide = Square<T>::kSide;
  const auto few = static_cast<int>(p.lines - i0);
  auto* const to = static_cast<T*>(p.to) + i0 * p.to_line;
  const auto* const from = static_cast<const T*>(p.from) + i0;
  const std::int64_t end = (p.columns - 1) * p.from_line + p.lines - i0;
  std::int64_t j = 0;
  if (few <= p.from_line)  // lines of overlapping windows are more than their columns are apart
    with_dense_step(p.from_line,
                    [&]<int kStep>(std::integral_constant<int, kStep>) { j = turn_dense_lines<T, kStep>(p, i0); });
  const std::int64_t read = kSide * p.from_line * static_cast<std::int64_t>(sizeof(T));
  for (; j + kSide <= p.columns; j += kSide) {
    if (p.from_line < 2 * kPart)
      for (std::int64_t ahead = 0; ahead < read; ahead += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(from + j * p.from_line) + kAhead + ahead);
    if (p.from_line > 0 && (j + kSide - 1) * p.from_line + kPart <= end)
      turn_part<T, kPart, true>(to + j, p.to_line, from + j * p.from_line, p.from_line, few);
    else
      turn_part<T, kPart, false>(to + j, p.to_line, from + j * p.from_line, p.from_line, few);
  }
  return j;
}

/// Columns from j0 on, at most kPart, of the first `lines` lines, whole vectors of them. Where lines follow each other,
/// what a line writes beyond its end is written again by the next ones, or later by others.
template <class T, int kPart> void turn_few_columns(const TransposedPlane& p, std::int64_t j0, std::int64_t lines) {
  constexpr int kSide = Square<T>::kSide;
  const auto few = static_cast<int>(p.columns - j0);
  const bool is_dense = p.to_line == p.columns;
  const std::int64_t end = p.lines * p.to_line;
  auto* const to = static_cast<T*>(p.to);
  const auto* const from = static_cast<const T*>(p.from) + j0 * p.from_line;
  for (std::int64_t i = 0; i < lines; i += kSide) {
    typename Square<T>::Line square[kPart];
#pragma GCC unroll 16
    for (int k = 0; k < kPart; ++k) {
      square[k] = typename Square<T>::Line{};
      if (k < few) __builtin_memcpy(&square[k], from + k * p.from_line + i, Square<T>::kBytes);
    }
    transpose_in_registers(square);
    const bool may_pass = is_dense && (i + kSide - 1) * p.to_line + j0 + kPart <= end;
#pragma GCC unroll 16
    for (int line = 0; line < kSide; ++line) {
      T part[kSide];
      __builtin_memcpy(part, &square[line % kPart], sizeof(part));
      T* const at = to + (i + line) * p.to_line + j0;
      if (may_pass)
        __builtin_memcpy(at, part + line / kPart * kPart, kPart * sizeof(T));
      else
        for (int k = 0; k < few; ++k) at[k] = part[line / kPart * kPart + k];
    }
  }
}

template <class T> inline void turn_elements(const TransposedPlane& p, std::int64_t i0, std::int64_t i1,
                                             std::int64_t j0, std::int64_t j1) {
  for (std::int64_t i = i0; i < i1; ++i)
    for (std::int64_t j = j0; j < j1; ++j)
      static_cast<T*>(p.to)[i * p.to_line + j] = static_cast<const T*>(p.from)[j * p.from_line + i];
}

/// The same where so few are left that smaller parts will do.
template <class T, int kPart = kLeastPart<T>> std::int64_t turn_last_lines(const TransposedPlane& p, std::int64_t i0) {
  if constexpr (kPart < Square<T>::kSide)
    if (p.lines - i0 > kPart) return turn_last_lines<T, 2 * kPart>(p, i0);
  return turn_few_lines<T, kPart>(p, i0);
}
template <class T, int kPart = kLeastPart<T>>
void turn_last_columns(const TransposedPlane& p, std::int64_t j0, std::int64_t lines) {
  if constexpr (kPart < Square<T>::kSide)
    if (p.columns - j0 > kPart) return turn_last_columns<T, 2 * kPart>(p, j0, lines);
  turn_few_columns<T, kPart>(p, j0, lines);
}

/// Squares of the plane from column `first` on, in strips of as many lines as some cache lines of the source hold.
template <class T, bool kStreams> void turn_squares(const TransposedPlane& p, std::int64_t first) {
  constexpr std::int64_t kSide = Square<T>::kSide, kStrip = 256 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t lines = p.lines / kSide * kSide, columns = first + (p.columns - first) / kSide * kSide;
  auto* const to = static_cast<T*>(p.to);
  const auto* const from = static_cast<const T*>(p.from);
  const bool is_dense = columns == 0 && p.to_line == p.columns &&
                        with_dense_step(p.columns, [&]<int kStep>(std::integral_constant<int, kStep>) {
                          turn_dense_columns<T, kStep>(p, lines);
                        });
  if (columns < p.columns && !is_dense) turn_last_columns<T>(p, columns, lines);
  for (std::int64_t strip = 0; strip < lines; strip += kStrip) {
    const std::int64_t end = strip + kStrip < lines ? strip + kStrip : lines;
    for (std::int64_t j = first; j < columns; j += kSide)
      for (std::int64_t i = strip; i < end; i += kSide)
        turn_square<T, kStreams>(to + i * p.to_line + j, p.to_line, from + j * p.from_line + i, p.from_line);
  }
  turn_elements<T>(p, 0, lines, 0, first);
  if (lines < p.lines) turn_elements<T>(p, lines, p.lines, turn_last_lines<T>(p, lines), p.columns);
}

constexpr std::int64_t kCacheLine = 64;

template <bool kStreams> inline void copy_cache_line(void* to, const void* from) {
  typedef char Part __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
  for (std::int64_t i = 0; i < kCacheLine; i += FERMATA_VECTOR_BYTES) {
    Part part;
    __builtin_memcpy(&part, static_cast<const char*>(from) + i, sizeof(part));
    if constexpr (kStreams)
      stream_line(static_cast<char*>(to) + i, part);
    else
      __builtin_memcpy(static_cast<char*>(to) + i, &part, sizeof(part));
  }
}

/// Lines and columns [first, ...) in blocks of whole cache lines of both sides, each of which is read and written once:
/// lines a large power of two apart push each other out of the caches before their other parts are used.
template <class T, bool kStreams> void turn_blocks(const TransposedPlane& p, std::int64_t first, std::int64_t lines,
                                                   std::int64_t columns, bool prefetches) {
  constexpr std::int64_t kWidth = kCacheLine / static_cast<std::int64_t>(sizeof(T)), kSide = Square<T>::kSide,
                         kStrip = 4 * kWidth;
  alignas(kCacheLine) T source[kWidth * kWidth], target[kWidth * kWidth];
  auto* const to = static_cast<T*>(p.to);
  const auto* const from = static_cast<const T*>(p.from);
  for (std::int64_t strip = 0; strip < lines; strip += kStrip) {
    const std::int64_t end = strip + kStrip < lines ? strip + kStrip : lines;
    for (std::int64_t j = first; j < columns; j += kWidth)
      for (std::int64_t i = strip; i < end; i += kWidth) {
        const T* const block = from + j * p.from_line + i;
        for (std::int64_t k = 0; k < kWidth; ++k) {
          if (prefetches && j + kWidth < columns) __builtin_prefetch(block + (k + kWidth) * p.from_line);
          copy_cache_line<false>(source + k * kWidth, block + k * p.from_line);
        }
        for (std::int64_t j0 = 0; j0 < kWidth; j0 += kSide)
          for (std::int64_t i0 = 0; i0 < kWidth; i0 += kSide)
            turn_square<T, false>(target + i0 * kWidth + j0, kWidth, source + j0 * kWidth + i0, kWidth);
        for (std::int64_t k = 0; k < kWidth; ++k)
          copy_cache_line<kStreams>(to + (i + k) * p.to_line + j, target + k * kWidth);
      }
  }
}

/// A part of a plane: `lines` of it from `line` on, and `columns` from `column` on.
template <class T> TransposedPlane part_of(const TransposedPlane& p, std::int64_t line, std::int64_t lines,
                                           std::int64_t column, std::int64_t columns) {
  return {.to = static_cast<T*>(p.to) + line * p.to_line + column,
          .from = static_cast<const T*>(p.from) + column * p.from_line + line,
          .to_line = p.to_line,
          .from_line = p.from_line,
          .lines = lines,
          .columns = columns,
          .streams = false};
}

/// Whether cache lines meet in few places of the caches.
template <class T> bool lines_meet(const TransposedPlane& p) {
  constexpr std::int64_t kApart = 1024, kElement = static_cast<std::int64_t>(sizeof(T));
  return p.from_line * kElement % kApart == 0 || p.to_line * kElement % kApart == 0;
}
/// Whether blocks are worth it: for lines that meet where squares are parts of them, and where nothing stays in the
/// caches; squares of whole lines that meet are written past the caches as well without them.
template <class T> bool goes_by_blocks(const TransposedPlane& p) {
  constexpr std::int64_t kWidth = kCacheLine / static_cast<std::int64_t>(sizeof(T));
  const bool in_parts = Square<T>::kBytes < kCacheLine;
  return (lines_meet<T>(p) ? in_parts || !p.streams : p.streams) && p.lines >= kWidth && p.columns >= 2 * kWidth;
}

template <class T> void turn_by_blocks(const TransposedPlane& p) {
  constexpr std::int64_t kElement = static_cast<std::int64_t>(sizeof(T)), kWidth = kCacheLine / kElement;
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p.to) % kCacheLine);
  const bool aligns = beyond % kElement == 0 && p.to_line * kElement % kCacheLine == 0;
  const std::int64_t head = aligns && beyond != 0 ? (kCacheLine - beyond) / kElement : 0;
  const std::int64_t lines = p.lines / kWidth * kWidth, columns = head + (p.columns - head) / kWidth * kWidth;
  const bool prefetches = !lines_meet<T>(p);  // else it would push out what is not yet used
  if (p.streams && aligns) {
    turn_blocks<T, true>(p, head, lines, columns, prefetches);
#if defined(__x86_64__)
    _mm_sfence();
#endif
  } else {
    turn_blocks<T, false>(p, head, lines, columns, prefetches);
  }
  if (head > 0) turn_squares<T, false>(part_of<T>(p, 0, lines, 0, head), 0);
  if (columns < p.columns) turn_squares<T, false>(part_of<T>(p, 0, lines, columns, p.columns - columns), 0);
  if (lines < p.lines) turn_squares<T, false>(part_of<T>(p, lines, p.lines - lines, 0, p.columns), 0);
}

template <class T> void turn_plane(const TransposedPlane& p) {
  constexpr std::int64_t kBytes = Square<T>::kBytes, kElement = static_cast<std::int64_t>(sizeof(T));
  if (goes_by_blocks<T>(p)) return turn_by_blocks<T>(p);
  // Parts of cache lines, in one row after the other, take twice as long past the caches as through them (Zen 4).
  if (!p.streams || kBytes < kCacheLine || p.to_line * kElement % kBytes != 0) return turn_squares<T, false>(p, 0);
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p.to) % kBytes);
  const std::int64_t head = beyond == 0 ? 0 : (kBytes - beyond) / kElement;
  turn_squares<T, true>(p, head < p.columns ? head : p.columns);
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

constexpr TransposeKernels kKernels{{nullptr, &turn_plane<std::uint8_t>, &turn_plane<std::uint16_t>, nullptr,
                                     &turn_plane<std::uint32_t>, nullptr, nullptr, nullptr,
                                     &turn_plane<std::uint64_t>}};

}  // namespace
}  // namespace fermata
