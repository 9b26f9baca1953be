// See matmul_packed_vnni.h. Twelve rows by 32 columns of sums stay in registers; for four positions of k a row gives 32
// bits to all lanes and the block two vectors. Half a block of some thousand positions stays in the first-level cache
// while rows pass by.
#include "codegen_cpu/library/matmul_packed_vnni.h"

#include <immintrin.h>

namespace fermata {
namespace {

constexpr int kVectors = 2, kLanes = 16, kBlockColumns = 64;

[[gnu::always_inline]] inline __m512i four_bytes(const std::uint8_t* from) {
  std::uint32_t word;
  __builtin_memcpy(&word, from, 4);
  return _mm512_set1_epi32(static_cast<int>(word));
}
/// The last ones of a row, and zeros.
__m512i fewer_bytes(const std::uint8_t* from, std::int64_t count) {
  std::uint32_t word = 0;
  for (std::int64_t i = 0; i < count; ++i) word |= static_cast<std::uint32_t>(from[i]) << (8 * i);
  return _mm512_set1_epi32(static_cast<int>(word));
}

/// Written out, as GCC 12 copies the sums of its intrinsic from register to register, and half of them to the stack.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i row, __m512i columns) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(columns));
}

/// Rows from `first` on, columns from `column` on.
template <int kCount> void multiply_rows(const PackedTile& t, std::int64_t first, std::int64_t column) {
  __m512i sums[kCount][kVectors];
#pragma GCC unroll 12
  for (auto& row : sums)
#pragma GCC unroll 2
    for (__m512i& sum : row) sum = _mm512_setzero_si512();
  const std::uint8_t* const x = t.x + first * t.k;
  const std::int8_t* block = t.block + column * 4;
  std::int64_t k = 0;
  for (; k + 4 <= t.k; k += 4, block += 4 * kBlockColumns) {
    const __m512i left = _mm512_loadu_si512(block), right = _mm512_loadu_si512(block + 4 * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      const __m512i row = four_bytes(x + i * t.k + k);
      add_products(sums[i][0], row, left), add_products(sums[i][1], row, right);
    }
  }
  if (k < t.k) {
    const __m512i left = _mm512_loadu_si512(block), right = _mm512_loadu_si512(block + 4 * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      const __m512i row = fewer_bytes(x + i * t.k + k, t.k - k);
      add_products(sums[i][0], row, left), add_products(sums[i][1], row, right);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t left = t.columns - column - v * kLanes;
      const auto mask = static_cast<__mmask16>(left >= kLanes ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
      _mm512_mask_storeu_epi32(t.out + (first + i) * t.out_row + column + v * kLanes, mask, sums[i][v]);
    }
}

}  // namespace

void packed_tile_vnni(const PackedTile& t) {
  for (std::int64_t column = 0; column < t.columns; column += kVectors * kLanes) {
    std::int64_t row = 0;
    for (; row + 12 <= t.rows; row += 12) multiply_rows<12>(t, row, column);
    for (; row + 4 <= t.rows; row += 4) multiply_rows<4>(t, row, column);
    for (; row < t.rows; ++row) multiply_rows<1>(t, row, column);
  }
}

}  // namespace fermata
