// The body of packed_weights_*.cpp, for vectors of FERMATA_VECTOR_BYTES.
//
// A lane is a row of the weights, so sums stay in their lanes and nothing is added across them. Codes become floats in
// registers. Those of 4 bits are masked out of their words and converted where they stand, which makes them 16^place
// times as large: x was divided by that. They are stored plus 8, which is taken from the sums of a group. Each lane has
// two chains of fused multiply-adds, of even and of odd positions, which meet in the sum of the whole row after each
// group: the same on every processor. Everything here has internal linkage.
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/library/packed_weights_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

constexpr int kVectorBytes = FERMATA_VECTOR_BYTES, kLanes = kVectorBytes / 4, kColumns = 32;
/// Sums that are kept in registers: rows of x times vectors.
constexpr int kSums = kVectorBytes == 64 ? 8 : 4;
/// Bytes that are asked for ahead: processors by themselves stop at the end of a page. From memory, on Zen 5: 8 bits 27
/// to 40 GB/s, 4 bits 27 to 35.
constexpr std::int64_t kAhead = 8192;
/// Positions after which the sums of 8 bits meet.
constexpr std::int64_t kBytesAtOnce = 64;

typedef float Floats __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
typedef std::int32_t Words __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
typedef std::uint32_t UnsignedWords __attribute__((vector_size(FERMATA_VECTOR_BYTES)));

template <class V> [[gnu::always_inline]] inline V load(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
[[gnu::always_inline]] inline Floats splat(float x) { return x - Floats{}; }

/// a * b + c, rounded once.
[[gnu::always_inline]] inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

/// The code at a place of each word, times 16^place but for the last one, which would have a sign.
[[gnu::always_inline]] inline Floats code_of(Words words, int place) {
  if (place == 7)
    return __builtin_convertvector(reinterpret_cast<Words>(reinterpret_cast<UnsignedWords>(words) >> 28), Floats);
  return __builtin_convertvector(words & (15 << (4 * place)), Floats);
}

/// A byte for each lane.
[[gnu::always_inline]] inline Floats bytes_at(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  Floats v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(static_cast<std::int8_t>(from[i]));
  return v;
#endif
}

/// A bf16 for each lane.
[[gnu::always_inline]] inline Floats halves_at(const std::uint8_t* from) {
#if defined(__AVX512F__)
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
#elif defined(__AVX2__)
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
#else
  Words bits;
  for (int i = 0; i < kLanes; ++i)
    bits[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(from[2 * i + 1]) << 24 |
                                        static_cast<std::uint32_t>(from[2 * i]) << 16);
  return load<Floats>(&bits);
#endif
}

[[gnu::always_inline]] inline void ask_for_line_pair(const std::uint8_t* at) {
  __builtin_prefetch(at + kAhead), __builtin_prefetch(at + kAhead + 64);
}

/// Vector by vector: GCC clears a whole array by a slow instruction.
template <int kRows, int kVectors> [[gnu::always_inline]] inline void clear(Floats (&sums)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Floats{};
}

template <int kRows, int kVectors> struct Sums {
  Floats even[kRows][kVectors], odd[kRows][kVectors];
  [[gnu::always_inline]] Sums() { clear(even), clear(odd); }
};

/// kRows rows of x, and kVectors vectors of columns from `column` on.
template <int kRows, int kVectors> void multiply_nibbles(const WeightsTile& t, std::int64_t row, std::int64_t column) {
  const float* const x = t.x + row * t.depth;
  const std::int64_t groups = t.depth / t.group;
  Floats total[kRows][kVectors];
  clear(total);
  const std::uint8_t* from = t.block;
  for (std::int64_t k = 0; k < t.depth; k += t.group) {
    const std::uint8_t* const scales = from + 2 * column;
    from += 2 * kColumns;
    Sums<kRows, kVectors> sums;
    for (std::int64_t p = k; p < k + t.group; p += 8, from += 4 * kColumns) {
      ask_for_line_pair(from + 4 * column);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Words words = load<Words>(from + 4 * column + v * kVectorBytes);
#pragma GCC unroll 8
        for (int place = 0; place < 8; ++place) {
          const Floats weight = code_of(words, place);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            Floats& sum = place % 2 == 0 ? sums.even[r][v] : sums.odd[r][v];
            sum = fused(splat(x[r * t.depth + p + place]), weight, sum);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Floats scale = halves_at(scales + v * kVectorBytes / 2);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Floats offset = splat(t.offsets[(row + r) * groups + k / t.group]);
        total[r][v] = fused(sums.even[r][v] + sums.odd[r][v] + offset, scale, total[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) __builtin_memcpy(t.out + (row + r) * kColumns + column, total[r], sizeof total[r]);
}

template <int kRows, int kVectors> void multiply_bytes(const WeightsTile& t, std::int64_t row, std::int64_t column) {
  const float* const x = t.x + row * t.depth;
  Floats total[kRows][kVectors];
  clear(total);
  const std::uint8_t* from = t.block + 4 * kColumns + column;
  for (std::int64_t k = 0; k < t.depth; k += kBytesAtOnce) {
    const std::int64_t end = k + kBytesAtOnce < t.depth ? k + kBytesAtOnce : t.depth;
    Sums<kRows, kVectors> sums;
    for (std::int64_t p = k; p < end; p += 4) {
      ask_for_line_pair(from - column);
#pragma GCC unroll 4
      for (int place = 0; place < 4; ++place, from += kColumns)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const Floats weight = bytes_at(from + v * kLanes);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            Floats& sum = place % 2 == 0 ? sums.even[r][v] : sums.odd[r][v];
            sum = fused(splat(x[r * t.depth + p + place]), weight, sum);
          }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) total[r][v] += sums.even[r][v] + sums.odd[r][v];
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = load<Floats>(t.block + 4 * column + v * kVectorBytes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) total[r][v] *= scale;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) __builtin_memcpy(t.out + (row + r) * kColumns + column, total[r], sizeof total[r]);
}

template <int kRows> void multiply_rows(const WeightsTile& t, std::int64_t row) {
  constexpr int kAll = kColumns / kLanes, kVectors = kSums / kRows < kAll ? kSums / kRows : kAll;
  for (std::int64_t column = 0; column < kColumns; column += kVectors * kLanes)
    if (t.group == 0)
      multiply_bytes<kRows, kVectors>(t, row, column);
    else
      multiply_nibbles<kRows, kVectors>(t, row, column);
}

void multiply_weights(const WeightsTile& t) {
  std::int64_t row = 0;
  for (; row + 4 <= t.rows; row += 4) multiply_rows<4>(t, row);
  for (; row + 2 <= t.rows; row += 2) multiply_rows<2>(t, row);
  if (row < t.rows) multiply_rows<1>(t, row);
}

}  // namespace
}  // namespace fermata
