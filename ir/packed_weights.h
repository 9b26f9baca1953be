// The memory layout of packed weight matrices: 8 bits with a scale per row, or 4 bits with a scale per group along a
// row.
//
// Rows are stored in blocks of 32, which a product accumulates at once. An 8-bit block has 32 scales (f32) followed by
// 32 bytes for each position along the rows. A 4-bit block has, per group, 32 scales (bf16) followed by 32 words of 8
// codes for every 8 positions, the first position in the lowest bits. 8-bit codes are two's complement, 4-bit codes are
// stored plus 8; a weight is its code times its scale. Padding rows have scales of zero.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/shape.h"

namespace fermata {

struct PackedWeights {
  static constexpr std::int64_t kBlock = 32;

  std::int64_t rows, columns;
  std::int64_t group;  // 4 bits: positions that share a scale; 0: 8 bits, with one scale per row

  /// Returns the layout of bytes of a shape, or nullopt if they cannot be such a matrix.
  static std::optional<PackedWeights> of(const Shape& bytes, std::int64_t rows, std::int64_t columns) {
    if (rows < 0 || columns < 0 || bytes.rank() < 2 || bytes.rank() > 3) return {};
    PackedWeights packed{rows, columns, bytes.rank() == 2 ? 0 : (bytes[2] - 2 * kBlock) / (kBlock / 2)};
    const bool is_known = packed.group == 0 || packed.group == 32 || packed.group == 64;
    if (!is_known || (bytes.rank() == 2) != (packed.group == 0) || packed.shape() != bytes) return {};
    return packed;
  }
  std::int64_t blocks() const { return rows / kBlock + (rows % kBlock != 0); }
  /// Groups along a row; 1 for 8 bits.
  std::int64_t groups() const { return group == 0 ? 1 : columns / group + (columns % group != 0); }
  /// Positions of a row, including padding.
  std::int64_t depth() const { return group == 0 ? (columns / 4 + (columns % 4 != 0)) * 4 : groups() * group; }
  /// Bytes of one group of a block, including its scales.
  std::int64_t group_bytes() const { return group == 0 ? kBlock * (4 + depth()) : kBlock * (2 + group / 2); }
  Shape shape() const { return group == 0 ? Shape{blocks(), group_bytes()} : Shape{blocks(), groups(), group_bytes()}; }
};

}  // namespace fermata
