// See matmul_bytes_pairs.h. Bytes of a block are widened as they are loaded; a product of two pairs has room in 32
// bits. Six rows by eight columns stay in registers, or more columns of fewer rows: for four positions of k a row gives
// 64 bits to all lanes, and a vector has four columns by two sums, which become one at the end.
#include <immintrin.h>

#include <cstddef>
#include <cstring>
#include <iterator>

#include "codegen_cpu/library/matmul_bytes_pairs.h"

namespace fermata {
namespace {

constexpr int kRows = 6, kColumns = 8;
/// Groups after which sums are stored, and go on for other columns: a part of a block stays in the first-level cache.
constexpr std::int64_t kDepth = 256;
/// Bytes.
constexpr std::int64_t kLine = 64, kFewAhead = 4096;
/// Groups from which on copying a result costs little beside its sums.
constexpr std::int64_t kGathered = 32;

template <bool kHasSigns> inline __m256i widened(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return kHasSigns ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

/// Written out, as GCC 12 keeps sums of its intrinsics on the stack.
[[gnu::always_inline]] inline void add_products(__m256i& sum, __m256i row, __m256i columns) {
  __m256i product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(row), "x"(columns));
}

/// kCount rows by kUnits times eight columns. The block is fetched so many bytes ahead.
template <bool kHasSigns, int kCount, int kUnits>
void multiply_rows(const std::int16_t* x, std::int64_t x_row, std::int64_t groups, const std::byte* block,
                   std::int64_t ahead, std::int32_t* out, std::int64_t out_row, std::int64_t columns, bool first) {
  __m256i sums[kUnits][kCount][2];
#pragma GCC unroll 6
  for (auto& unit : sums)
#pragma GCC unroll 6
    for (auto& row : unit) row[0] = row[1] = _mm256_setzero_si256();
  for (std::int64_t g = 0; g < groups; ++g, block += 4 * kBytesColumns, x += 4) {
#pragma GCC unroll 6
    for (int u = 0; u < kUnits; ++u) {
      const std::byte* const from = block + u * kColumns * 4;
      if (u % 2 == 0) _mm_prefetch(from + ahead, _MM_HINT_T0);
      const __m256i left = widened<kHasSigns>(from), right = widened<kHasSigns>(from + 16);
#pragma GCC unroll 6
      for (int i = 0; i < kCount; ++i) {
        long long four;
        __builtin_memcpy(&four, x + i * x_row, sizeof(four));
        const __m256i row = _mm256_set1_epi64x(four);
        add_products(sums[u][i][0], row, left), add_products(sums[u][i][1], row, right);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kCount; ++i, out += out_row)
#pragma GCC unroll 6
    for (int u = 0; u < kUnits; ++u) {
      std::int32_t* const at = out + u * kColumns;
      const __m256i halves = _mm256_hadd_epi32(sums[u][i][0], sums[u][i][1]);
      __m256i total = _mm256_permute4x64_epi64(halves, 0xd8);
      if (columns >= kUnits * kColumns) {
        auto* const to = reinterpret_cast<__m256i*>(at);
        if (!first) total = _mm256_add_epi32(total, _mm256_loadu_si256(to));
        _mm256_storeu_si256(to, total);
      } else {
        alignas(32) std::uint32_t some[kColumns];
        _mm256_store_si256(reinterpret_cast<__m256i*>(some), total);
        for (std::int64_t j = 0; j < columns; ++j)
          at[j] = static_cast<std::int32_t>(some[j] + (first ? 0u : static_cast<std::uint32_t>(at[j])));
      }
    }
}

using Multiply = void (*)(const std::int16_t*, std::int64_t, std::int64_t, const std::byte*, std::int64_t,
                          std::int32_t*, std::int64_t, std::int64_t, bool);

template <bool kHasSigns> void multiply(const PairsTile& t) {
  static constexpr Multiply kOf[] = {multiply_rows<kHasSigns, 1, 1>, multiply_rows<kHasSigns, 2, 1>,
                                     multiply_rows<kHasSigns, 3, 1>, multiply_rows<kHasSigns, 4, 1>,
                                     multiply_rows<kHasSigns, 5, 1>, multiply_rows<kHasSigns, 6, 1>};
  // A loop for one row of eight columns has as many other instructions as products, and reads half a cache line.
  struct Wide {
    Multiply multiply;
    std::int64_t columns;
  };
  static constexpr Wide kWide[] = {{multiply_rows<kHasSigns, 1, 4>, 4 * kColumns},
                                   {multiply_rows<kHasSigns, 2, 2>, 2 * kColumns},
                                   {multiply_rows<kHasSigns, 3, 2>, 2 * kColumns}};
  // Rows of a result are often pages apart: a block's are stored in whole cache lines at the end.
  alignas(64) std::int32_t gathered[kBytesRows * kBytesColumns];
  const bool gathers = t.rows > kRows && t.groups >= kGathered;
  const std::int64_t parts = t.groups > kDepth ? (t.groups + kDepth - 1) / kDepth : 1;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = t.groups * part / parts, groups = t.groups * (part + 1) / parts - begin;
    std::int32_t* const out = gathers ? gathered : t.out;
    const std::int64_t out_row = gathers ? kBytesColumns : t.out_row;
    const auto run = [&](Multiply f, std::int64_t row, std::int64_t column, std::int64_t ahead) {
      f(t.x + row * t.x_row + begin * 4, t.x_row, groups, t.block + (begin * kBytesColumns + column) * 4, ahead,
        out + row * out_row + column, out_row, t.columns - column, part == 0);
    };
    std::int64_t column = 0;
    if (t.rows <= std::ssize(kWide))
      for (const Wide& wide = kWide[t.rows - 1]; column + wide.columns <= t.columns; column += wide.columns)
        run(wide.multiply, 0, column, kFewAhead);
    for (; column < t.columns; column += kColumns)
      for (std::int64_t row = 0; row < t.rows;) {
        const std::int64_t left = t.rows - row;  // shared out evenly at the end: one row takes as long as three
        const std::int64_t count = left >= 2 * kRows ? kRows : left > kRows ? (left + 1) / 2 : left;
        // The first rows fetch the next cache line of each group, and at the end of a group what follows in memory.
        const bool is_last = column + kLine / 4 >= kBytesColumns;
        run(kOf[count - 1], row, column, row > 0 ? 0 : is_last ? groups * 4 * kBytesColumns - column * 4 : kLine);
        row += count;
      }
  }
  if (gathers)
    for (std::int64_t row = 0; row < t.rows; ++row)
      std::memcpy(t.out + row * t.out_row, gathered + row * kBytesColumns, static_cast<std::size_t>(t.columns) * 4);
}

}  // namespace

void pairs_tile_avx2(const PairsTile& t) { t.has_signs ? multiply<true>(t) : multiply<false>(t); }

void interleave_rows_avx2(const std::byte* const rows[4], std::int64_t columns, std::byte* to) {
  for (std::int64_t j = 0; j < columns; j += 16, to += 64) {
    __m128i r[4];
    for (int i = 0; i < 4; ++i) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + j));
    const __m128i a = _mm_unpacklo_epi8(r[0], r[1]), b = _mm_unpackhi_epi8(r[0], r[1]);
    const __m128i c = _mm_unpacklo_epi8(r[2], r[3]), d = _mm_unpackhi_epi8(r[2], r[3]);
    auto* const out = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(out, _mm_unpacklo_epi16(a, c)), _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(a, c));
    _mm_storeu_si128(out + 2, _mm_unpacklo_epi16(b, d)), _mm_storeu_si128(out + 3, _mm_unpackhi_epi16(b, d));
  }
}

void interleave_columns_avx2(const std::byte* from, std::int64_t column, std::int64_t groups, std::byte* to) {
  for (std::int64_t g = 0; g < groups; g += 4, from += 16, to += 4 * kBytesGroup * kBytesColumns) {
    __m128i c[4];
    for (int i = 0; i < 4; ++i) c[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * column));
    const __m128i a = _mm_unpacklo_epi32(c[0], c[1]), b = _mm_unpacklo_epi32(c[2], c[3]);
    const __m128i d = _mm_unpackhi_epi32(c[0], c[1]), e = _mm_unpackhi_epi32(c[2], c[3]);
    const __m128i group[] = {_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b), _mm_unpacklo_epi64(d, e),
                             _mm_unpackhi_epi64(d, e)};
    for (int i = 0; i < 4; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * kBytesGroup * kBytesColumns), group[i]);
  }
}

}  // namespace fermata
