// A matrix product decoded into sizes, strides and batches for the CUDA kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen_cuda/irregular/call_source.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"

namespace fermata::gpu {

/// A matrix inside an operand. Strides are in elements.
struct MatrixSide {
  const void* data;
  DType dtype;
  std::int64_t row_stride, column_stride;
  Shape batch_strides;
};

struct MatmulProblem {
  std::int64_t m = 1, n = 1, k = 1;
  MatrixSide lhs, rhs;  // m x k and k x n
  void* out;            // dense: batches, m, n
  DType out_dtype;
  Shape batch_sizes;  // adjacent axes are merged where possible

  std::int64_t batches() const { return element_count(batch_sizes); }
};

/// Vectors are matrices of one row or column.
MatmulProblem decode_matmul(const CallArgs& args);

/// Whether elements are contiguous along rows (columns), and rows (columns) do not overlap.
bool lies_by_rows(const MatrixSide& side, std::int64_t rows, std::int64_t columns);
bool lies_by_columns(const MatrixSide& side, std::int64_t rows, std::int64_t columns);

}  // namespace fermata::gpu
