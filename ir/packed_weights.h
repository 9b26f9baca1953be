// How matrices of weights lie in bytes: 8 bits with a scale per row, or 4 bits with a scale per group along a row.
//
// Rows come in blocks of 32, which is what a product adds up at once. A block of 8 bits is 32 scales (f32) and then,
// for each position along the rows, 32 bytes. A block of 4 bits is, for each group, 32 scales (bf16) and then, for each
// 8 positions, 32 words of 8 codes, the first position in the lowest bits. Codes of 8 bits are two's complement, those
// of 4 bits are stored plus 8; a weight is its code times its scale. Rows that pad have scales of zero.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/shape.h"

namespace fermata {

struct PackedWeights {
  static constexpr std::int64_t kBlock = 32;

  std::int64_t rows, columns;
  std::int64_t group;  // positions that share a scale, with 4 bits; 0: 8 bits, and a scale for the whole row

  /// What bytes of a shape hold, if they can be such a matrix.
  static std::optional<PackedWeights> of(const Shape& bytes, std::int64_t rows, std::int64_t columns) {
    if (rows < 0 || columns < 0 || bytes.rank() < 2 || bytes.rank() > 3) return {};
    PackedWeights packed{rows, columns, bytes.rank() == 2 ? 0 : (bytes[2] - 2 * kBlock) / (kBlock / 2)};
    const bool is_known = packed.group == 0 || packed.group == 32 || packed.group == 64;
    if (!is_known || (bytes.rank() == 2) != (packed.group == 0) || packed.shape() != bytes) return {};
    return packed;
  }
  std::int64_t blocks() const { return rows / kBlock + (rows % kBlock != 0); }
  /// Along a row; of 8 bits one.
  std::int64_t groups() const { return group == 0 ? 1 : columns / group + (columns % group != 0); }
  /// Positions of a row with those that pad.
  std::int64_t depth() const { return group == 0 ? (columns / 4 + (columns % 4 != 0)) * 4 : groups() * group; }
  /// Bytes of one group of a block, with its scales.
  std::int64_t group_bytes() const { return group == 0 ? kBlock * (4 + depth()) : kBlock * (2 + group / 2); }
  Shape shape() const { return group == 0 ? Shape{blocks(), group_bytes()} : Shape{blocks(), groups(), group_bytes()}; }
};

}  // namespace fermata
