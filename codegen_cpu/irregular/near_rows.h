// Short rows that lie near each other, brought one behind the other by shuffles of vectors: compiled once per
// instruction set (near_rows_*.cpp). The pixels of an image from right to left, or three of their four channels, are
// such rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// to[i * length + j] = from[i * step + j * inner_step] for i < count, j < length; steps in elements. An inner step of
/// 0 repeats one element.
struct NearRows {
  std::int64_t element_bytes;  // 1, 2, 4 or 8
  std::int64_t length, step, inner_step;
};

/// How a vector of whole rows is shuffled: made once for many runs.
struct NearRowsOrder {
  std::int64_t vector_bytes = 0;  // 0: there is no such shuffle
  std::int64_t rows = 0;          // in one vector
  std::int64_t start = 0;         // bytes from the first element of the first of them to the vector that is read
  NearRows of;
  alignas(64) std::uint8_t order[64];
};

struct NearRowsKernels {
  /// No order where loops over elements take less.
  void (*find_order)(NearRowsOrder&, const NearRows&);
  /// Reads and writes nothing but the elements of the rows and what lies between them.
  void (*copy)(const NearRowsOrder&, void* to, const void* from, std::int64_t count);
};
extern const NearRowsKernels kNearRowsBaseline;
#if defined(__x86_64__)
extern const NearRowsKernels kNearRowsAvx2;
extern const NearRowsKernels kNearRowsAvx512;
#endif
const NearRowsKernels& near_rows_kernels();

}  // namespace fermata
