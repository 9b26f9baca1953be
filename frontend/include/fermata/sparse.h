// Sparse tensors: those of their elements that are stored, and where they are. The others are zero.
//
// COO holds a position per stored element and any number of axes; CSR holds a matrix row by row. Either is made of
// dense tensors, which are recorded like any others; as a whole it goes to kernels of its own: add, multiply, matmul
// with dense matrices, sum, transpose, and every pointwise op that leaves zeros alone. An op that does not, such as
// exp, says so. Gradients reach the values that a sparse tensor was built from. docs/sparse.md has the rules.
#pragma once

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// A sparse tensor of the given sizes with values[i] at position indices[:, i]. Where a position comes twice, its
/// values add up. `check` reads the indices, which computes them.
///
/// Shapes   indices [axes, N], values [N].
/// DType    indices integers, kept as i64; values real or bool.
/// Errors   ShapeError, DTypeError; IndexError for a position out of range.
Tensor sparse_coo(const Tensor& indices, const Tensor& values, const IntegerList& sizes, bool check = true,
                  Location where = Location::current());
/// A sparse matrix: the values of row i are those from row_offsets[i] to row_offsets[i + 1], in these columns.
///
/// Shapes   row_offsets [rows + 1], columns [N], values [N]; sizes {rows, columns}.
/// DType    as for sparse_coo.
/// Errors   ShapeError, DTypeError; IndexError for offsets that do not rise from 0 to N, or a column out of range.
Tensor sparse_csr(const Tensor& row_offsets, const Tensor& columns, const Tensor& values, const IntegerList& sizes,
                  bool check = true, Location where = Location::current());

/// The elements of x that are not zero, or those that are stored where x is sparse. How many there are is data: a
/// dense x is computed (a counted sync). CSR takes a matrix.
Tensor to_sparse_coo(const Tensor& x, Location where = Location::current());
Tensor to_sparse_csr(const Tensor& x, Location where = Location::current());
/// All elements. A dense x is handed back.
Tensor to_dense(const Tensor& x, Location where = Location::current());

bool is_sparse(const Tensor& x);
/// Is every position stored once, in row-major order? Always true of what coalesce() and conversions give.
bool is_coalesced(const Tensor& x, Location where = Location::current());
/// The same tensor with positions in order, and the values of equal ones added up in the order they came. Reads the
/// indices.
Tensor coalesce(const Tensor& x, Location where = Location::current());

// The parts. DTypeError for a tensor that is not sparse, or has no such part.
/// How many values are stored, zeros and repeated positions included.
std::int64_t stored_count(const Tensor& x, Location where = Location::current());
/// COO: i64 [axes, N].
Tensor stored_indices(const Tensor& x, Location where = Location::current());
/// [N], with the history of what the tensor was built from.
Tensor stored_values(const Tensor& x, Location where = Location::current());
/// CSR: i64 [rows + 1] and [N].
Tensor stored_row_offsets(const Tensor& x, Location where = Location::current());
Tensor stored_columns(const Tensor& x, Location where = Location::current());

}  // namespace fermata
