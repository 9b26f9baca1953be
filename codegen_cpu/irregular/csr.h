// Products of sparse matrices in rows (CSR) with dense ones: what the call kernels check and share out.
//
// A pattern holds row offsets and then columns. Kernels check both as they read them, because a pattern may come from
// anywhere, and share out rows by how many entries they have.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/tensor_view.h"

namespace fermata {

/// A checked pattern. Offsets start at 0, never fall and end at `entries`; columns are within [0, width).
struct CsrPattern {
  const std::int64_t* offsets;  // rows + 1
  const std::int64_t* columns;  // entries
  std::int64_t rows, entries, width;
};

/// Rows of a product and the dense matrix that they are made from. Columns of both lie next to each other.
struct CsrRows {
  CsrPattern pattern;
  const void* values;
  const void* dense;
  void* out;
  std::int64_t columns;           // of the dense matrix and the result
  std::int64_t dense_row_stride;  // in elements
};

/// Wraps for integers; the product of two u16 would overflow an int. Always inlined, so that a file built for one
/// instruction set never lends its copy to another.
template <class T> [[gnu::always_inline]] inline T csr_product(T a, T b) {
  if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(int))
    return static_cast<T>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
  else
    return a * b;
}

/// The innermost loops, compiled once per instruction set (csr_rows_*.cpp). Integers use the unsigned rows: wrapping
/// products have the same low bits.
struct CsrKernels {
  enum Element : std::uint8_t { u8, u16, u32, u64, f32, f64, count };
  /// Rows [begin, end) of the result. Each element adds its products in order of the row's entries, or, in the product
  /// with one column, in four chains.
  void (*rows[count])(const CsrRows&, std::int64_t begin, std::int64_t end);
};
extern const CsrKernels kCsrBaseline;
#if defined(__x86_64__)
extern const CsrKernels kCsrAvx2;
extern const CsrKernels kCsrAvx512;
#endif
const CsrKernels& csr_kernels();
CsrKernels::Element csr_element(DType dtype);

/// Attributes [columns, transposed]; inputs pattern, values, dense. IndexError FM1250 for a broken pattern.
void csr_matmul_call(const CallArgs& args);
/// Inputs pattern, lhs, rhs: for every entry the product of a row of lhs with one of rhs.
void csr_sampled_matmul_call(const CallArgs& args);

}  // namespace fermata
