// The inner part of matmul_packed for AVX-512 VNNI, in a file of its own that is compiled for it.
#pragma once

#include <cstdint>

namespace fermata {

/// out[rows, columns] = x[rows, k] times one block of up to 64 columns; strides in elements.
struct PackedTile {
  const std::uint8_t* x;
  std::int64_t k;
  const std::int8_t* block;  // [K/4, 64, 4]
  std::int32_t* out;
  std::int64_t out_row;
  std::int64_t rows, columns;
};
void packed_tile_vnni(const PackedTile& tile);

}  // namespace fermata
