// Many products of tiny matrices, compiled once per instruction set (matmul_tiny_*.cpp).
#pragma once

#include <cstdint>

namespace fermata {

/// Sizes up to which a matrix is tiny: a row of it is one vector.
inline constexpr std::int64_t kTinyMost = 8;

/// out[b, i, j] = sum over k of lhs[b, i, k] rhs[b, k, j]. Strides are in elements; out is dense.
struct TinyProducts {
  const void* lhs;
  std::int64_t lhs_batch, lhs_row, lhs_k;
  const void* rhs;
  std::int64_t rhs_batch, rhs_k, rhs_column;
  void* out;
  const void* end;  // of what may be overwritten: rows are written as whole vectors, in order
  std::int64_t count, m, n, k;
};

struct TinyKernels {
  /// Each element is one chain of fused multiply-adds in order of k.
  void (*in_order_f32)(const TinyProducts&);
  void (*in_order_f64)(const TinyProducts&);
  /// n is 1. Each element is the sum by halves of its products: that of lanes 0 to 3 and of lanes 4 to 7, and so on.
  void (*by_halves_f32)(const TinyProducts&);
  void (*by_halves_f64)(const TinyProducts&);
};

#if defined(__x86_64__)
extern const TinyKernels kTinyAvx2;
extern const TinyKernels kTinyAvx512;
#endif

}  // namespace fermata
