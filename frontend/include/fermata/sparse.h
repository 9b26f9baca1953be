// Sparse tensors store some elements with their positions; all others are zero.
//
// COO stores the position of each element, for any number of axes; CSR stores a matrix row by row. Both consist of
// dense tensors, which are recorded like any others. Sparse kernels exist for add, multiply, matmul with dense
// matrices, sum, transpose, and every pointwise op that maps zero to zero; others, such as exp, throw an error.
// Gradients flow to the values that a sparse tensor was built from. docs/sparse.md has the rules.
#pragma once

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// Makes a sparse tensor of the given sizes with values[i] at position indices[:, i]. Values at repeated positions add
/// up. `check` reads the indices, which syncs.
///
/// Shapes   indices [axes, N], values [N].
/// DType    indices integers, stored as i64; values real or bool.
/// Errors   ShapeError, DTypeError; IndexError for a position out of range.
Tensor sparse_coo(const Tensor& indices, const Tensor& values, const IntegerList& sizes, bool check = true,
                  Location where = Location::current());
/// Makes a sparse matrix: row i has the values [row_offsets[i], row_offsets[i + 1]), in the columns at the same
/// positions.
///
/// Shapes   row_offsets [rows + 1], columns [N], values [N]; sizes {rows, columns}.
/// DType    as for sparse_coo.
/// Errors   ShapeError, DTypeError; IndexError for offsets that do not rise from 0 to N, or a column out of range.
Tensor sparse_csr(const Tensor& row_offsets, const Tensor& columns, const Tensor& values, const IntegerList& sizes,
                  bool check = true, Location where = Location::current());

/// Converts x: keeps the non-zero elements of a dense x, or the stored elements of a sparse one. A dense x syncs,
/// because the number of elements depends on the data. CSR takes a matrix.
Tensor to_sparse_coo(const Tensor& x, Location where = Location::current());
Tensor to_sparse_csr(const Tensor& x, Location where = Location::current());
/// Converts to a dense tensor. A dense x is returned as it is.
Tensor to_dense(const Tensor& x, Location where = Location::current());

bool is_sparse(const Tensor& x);
/// Whether every position is stored once, in row-major order. Always true for results of coalesce() and conversions.
bool is_coalesced(const Tensor& x, Location where = Location::current());
/// Sorts positions and sums the values of equal ones in storage order. Reads the indices.
Tensor coalesce(const Tensor& x, Location where = Location::current());

// Component tensors. DTypeError for a tensor that is not sparse, or has no such component.
/// The number of stored values, including zeros and repeated positions.
std::int64_t stored_count(const Tensor& x, Location where = Location::current());
/// COO: i64 [axes, N].
Tensor stored_indices(const Tensor& x, Location where = Location::current());
/// [N], with the gradient history of the values that the tensor was built from.
Tensor stored_values(const Tensor& x, Location where = Location::current());
/// CSR: i64 [rows + 1] and [N].
Tensor stored_row_offsets(const Tensor& x, Location where = Location::current());
Tensor stored_columns(const Tensor& x, Location where = Location::current());

}  // namespace fermata
