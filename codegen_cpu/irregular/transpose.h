// Copies of transposed planes: the innermost loops, compiled once per instruction set (transpose_*.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// to[i * to_line + j] = from[j * from_line + i] for i < lines, j < columns; in elements.
struct TransposedPlane {
  void* to;
  const void* from;
  std::int64_t to_line, from_line;
  std::int64_t lines, columns;
  bool streams;  // past the caches, where the lines of the target allow it
};

struct TransposeKernels {
  void (*of_bytes[9])(const TransposedPlane&);  // of elements of 1, 2, 4 and 8 bytes
};
extern const TransposeKernels kTransposeBaseline;
#if defined(__x86_64__)
extern const TransposeKernels kTransposeAvx2;
extern const TransposeKernels kTransposeAvx512;
#endif
const TransposeKernels& transpose_kernels();

}  // namespace fermata
