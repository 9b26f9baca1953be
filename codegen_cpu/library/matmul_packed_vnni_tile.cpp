// See matmul_packed_vnni.h. Six rows by 64 columns of sums stay in registers; for four positions of k a row gives 32
// bits to all lanes and the block four vectors, 24 multiplications per 256 bytes of the block.
#include "codegen_cpu/library/matmul_packed_vnni.h"

#include <immintrin.h>

namespace fermata {
namespace {

constexpr int kRows = 6, kVectors = 4;

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

template <int kCount> inline void multiply_rows(const PackedTile& t, std::int64_t first) {
  __m512i sums[kCount][kVectors];
  for (auto& row : sums)
    for (__m512i& sum : row) sum = _mm512_setzero_si512();
  const std::uint8_t* const x = t.x + first * t.k;
  const auto step = [&](std::int64_t k, auto&& bytes_of) __attribute__((always_inline)) {
    const std::int8_t* const from = t.block + k * 64;
    __m512i columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(from + v * 64);
    for (int i = 0; i < kCount; ++i) {
      const __m512i row = bytes_of(x + i * t.k + k);
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_dpbusd_epi32(sums[i][v], row, columns[v]);
    }
  };
  std::int64_t k = 0;
  for (; k + 4 <= t.k; k += 4) step(k, four_bytes);
  if (k < t.k) step(k, [&](const std::uint8_t* from) { return fewer_bytes(from, t.k - k); });
  for (int i = 0; i < kCount; ++i)
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t left = t.columns - v * 16;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
      _mm512_mask_storeu_epi32(t.out + (first + i) * t.out_row + v * 16, mask, sums[i][v]);
    }
}

}  // namespace

void packed_tile_vnni(const PackedTile& t) {
  std::int64_t row = 0;
  for (; row + kRows <= t.rows; row += kRows) multiply_rows<kRows>(t, row);
  for (; row + 2 <= t.rows; row += 2) multiply_rows<2>(t, row);
  if (row < t.rows) multiply_rows<1>(t, row);
}

}  // namespace fermata
