// The inner part of products of bytes by pairs, in a file of its own that is compiled for AVX2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// Columns of a block, and positions of k that lie together in it: the layout of matmul_packed.
inline constexpr std::int64_t kBytesColumns = 64, kBytesGroup = 4;
/// Rows that meet a block before the next one does: a stretch of k of theirs stays in the second-level cache.
inline constexpr std::int64_t kBytesRows = 96;

/// out[rows, columns] = x[rows, k] times one block of up to 64 columns; strides in elements.
struct PairsTile {
  const std::int16_t* x;  // widened, with zeros up to whole groups
  std::int64_t x_row;
  std::int64_t groups;
  const std::byte* block;  // [groups, 64, 4]; columns up to a multiple of 8 can be read
  bool has_signs;          // of the block
  std::int32_t* out;
  std::int64_t out_row;
  std::int64_t rows, columns;  // at most kBytesRows
};
void pairs_tile_avx2(const PairsTile& tile);

/// Four rows of bytes as a group of so many columns, a multiple of 16: to[column, 4].
void interleave_rows_avx2(const std::byte* const rows[kBytesGroup], std::int64_t columns, std::byte* to);

/// Four columns of bytes, each of so many groups of k, a multiple of four, as these groups of a block.
void interleave_columns_avx2(const std::byte* from, std::int64_t column, std::int64_t groups, std::byte* to);

}  // namespace fermata
