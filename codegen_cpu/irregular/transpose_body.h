// The body of transpose_*.cpp. The includer defines FERMATA_VECTOR_BYTES.
//
// Squares of whole vectors are turned in registers: where a vector is a cache line, each line is read once and written
// once, whatever the strides, though strides of powers of two leave it no place to wait in the first-level cache.
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstddef>
#include <cstdint>
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

template <class T> inline void turn_elements(const TransposedPlane& p, std::int64_t i0, std::int64_t i1,
                                             std::int64_t j0, std::int64_t j1) {
  for (std::int64_t i = i0; i < i1; ++i)
    for (std::int64_t j = j0; j < j1; ++j)
      static_cast<T*>(p.to)[i * p.to_line + j] = static_cast<const T*>(p.from)[j * p.from_line + i];
}

/// Squares of the plane from column `first` on, in strips of as many lines as some cache lines of the source hold.
template <class T, bool kStreams> void turn_squares(const TransposedPlane& p, std::int64_t first) {
  constexpr std::int64_t kSide = Square<T>::kSide, kStrip = 256 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t lines = p.lines / kSide * kSide, columns = first + (p.columns - first) / kSide * kSide;
  auto* const to = static_cast<T*>(p.to);
  const auto* const from = static_cast<const T*>(p.from);
  for (std::int64_t strip = 0; strip < lines; strip += kStrip) {
    const std::int64_t end = strip + kStrip < lines ? strip + kStrip : lines;
    for (std::int64_t j = first; j < columns; j += kSide)
      for (std::int64_t i = strip; i < end; i += kSide)
        turn_square<T, kStreams>(to + i * p.to_line + j, p.to_line, from + j * p.from_line + i, p.from_line);
  }
  turn_elements<T>(p, 0, lines, 0, first);
  turn_elements<T>(p, 0, lines, columns, p.columns);
  turn_elements<T>(p, lines, p.lines, 0, p.columns);
}

template <class T> void turn_plane(const TransposedPlane& p) {
  constexpr std::int64_t kBytes = Square<T>::kBytes, kElement = static_cast<std::int64_t>(sizeof(T));
  if (!p.streams || p.to_line * kElement % kBytes != 0) return turn_squares<T, false>(p, 0);
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
