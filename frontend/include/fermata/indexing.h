// Gathers and scatters along an axis. Scatters replace, add, multiply, or take the minimum or maximum.
//
// Negative indices count from the end; an index out of range is an IndexError when the value is computed. If several
// elements have the same destination, they are applied in row-major order of the index, for any number of threads.
// take() and index_add() (fermata/ops.h) work on whole slices. Errors: ShapeError if shapes do not match, DTypeError
// unless the index has an integer dtype.
#pragma once

#include "runtime/operand.h"

namespace fermata {

/// result[i, j, k] = x[i, index[i, j, k], k] for axis 1, and so on.
///
/// Shapes   x and index have the same rank; index is no longer than x along every axis but `axis`. The result has the
///          shape of index.
/// Source   PyTorch, torch.gather.
Tensor gather(const Tensor& x, const Tensor& index, std::int64_t axis = 0, Location where = Location::current());
/// gather() with x and index broadcast against each other along all axes but `axis`.
///
/// Source   NumPy and the Python array API 2024.12, take_along_axis.
Tensor take_along_axis(const Tensor& x, const Tensor& index, std::int64_t axis = -1,
                       Location where = Location::current());

/// Returns x with result[i, index[i, j, k], k] = source[i, j, k] for axis 1, and so on. The last write to a position
/// wins.
///
/// Shapes   index as for gather(); source is at least as long as index along every axis; the rest is not read.
/// DType    that of x; source is cast.
/// Source   PyTorch, torch.scatter.
Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
               Location where = Location::current());
Tensor scatter(const Tensor& x, const Tensor& index, Scalar value, std::int64_t axis = 0,
               Location where = Location::current());
/// Returns x with the elements of source added at the positions scatter() would write. f16 and bf16 accumulate in f32.
Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
                   Location where = Location::current());

enum class ScatterReduction : std::uint8_t { sum, prod, mean, amax, amin };
/// Returns x with each destination replaced by the reduction of the source elements scattered to it, including the
/// element of x if `include_self`. The mean of integers is rounded down.
///
/// Source   PyTorch, torch.scatter_reduce.
Tensor scatter_reduce(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis,
                      ScatterReduction reduction, bool include_self = true, Location where = Location::current());

/// scatter() with index and values broadcast to the shape of x along all axes but `axis`.
///
/// Source   NumPy, put_along_axis (which writes in place).
Tensor put_along_axis(const Tensor& x, const Tensor& index, const Tensor& values, std::int64_t axis = -1,
                      Location where = Location::current());
/// Returns x with the slices at the positions in `index` replaced by those of source, or by a number.
///
/// Shapes   x [..A, N, ..B], index [I], source [..A, I, ..B].
/// Source   PyTorch, torch.index_copy and torch.index_fill.
Tensor index_copy(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
                  Location where = Location::current());
Tensor index_fill(const Tensor& x, const Tensor& index, Scalar value, std::int64_t axis = 0,
                  Location where = Location::current());

}  // namespace fermata
