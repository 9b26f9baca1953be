// Copies between two layouts of the same elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fermata {

/// One side of a copy: strides in elements, which may be negative; zero where elements are read again.
struct StridedSide {
  void* data;
  std::span<const std::int64_t> strides;
};

/// to[i...] = from[i...] for all i below `sizes`, on several threads where it is worth it. Elements have 1, 2, 4, 8 or
/// 16 bytes. Where several i name one element of `to`, the last in row-major order wins. The sides must not overlap.
void strided_copy(StridedSide to, StridedSide from, std::span<const std::int64_t> sizes, std::size_t element_bytes);

}  // namespace fermata
