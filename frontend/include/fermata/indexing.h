// Elements at positions along an axis: gathers, and scatters that replace, add, multiply or take extremes.
//
// Positions count from the end where negative; one out of range is an IndexError when the value is computed. Where
// several elements go to one place they are taken in row-major order of the index, whatever the number of threads.
// take() and index_add() (fermata/ops.h) address whole slices. Errors: ShapeError where shapes do not fit, DTypeError
// unless the index has an integer dtype.
#pragma once

#include "runtime/operand.h"

namespace fermata {

/// result[i, j, k] = x[i, index[i, j, k], k] for axis 1, and so on.
///
/// Shapes   x and index have the same axes; index is nowhere longer than x but along `axis`. The result has the shape
/// of
///          index.
/// Source   PyTorch, torch.gather.
Tensor gather(const Tensor& x, const Tensor& index, std::int64_t axis = 0, Location where = Location::current());
/// gather() where x and index broadcast against each other, `axis` apart.
///
/// Source   NumPy and the Python array API 2024.12, take_along_axis.
Tensor take_along_axis(const Tensor& x, const Tensor& index, std::int64_t axis = -1,
                       Location where = Location::current());

/// x with result[i, index[i, j, k], k] = source[i, j, k] for axis 1, and so on; the last of several stays.
///
/// Shapes   index as for gather(); source at least as long as index along every axis, what is beyond is not read.
/// DType    that of x; source is cast.
/// Source   PyTorch, torch.scatter.
Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
               Location where = Location::current());
Tensor scatter(const Tensor& x, const Tensor& index, Scalar value, std::int64_t axis = 0,
               Location where = Location::current());
/// x with the elements of source added where scatter() would put them. f16 and bf16 are added in f32.
Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
                   Location where = Location::current());

enum class ScatterReduction : std::uint8_t { sum, prod, mean, amax, amin };
/// x with what several elements of source that go to one place come to; `include_self` says whether the element of x
/// that was there is one of them. The mean of integers is rounded down.
///
/// Source   PyTorch, torch.scatter_reduce.
Tensor scatter_reduce(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis,
                      ScatterReduction reduction, bool include_self = true, Location where = Location::current());

/// scatter() where index and values broadcast to the shape of x, `axis` apart.
///
/// Source   NumPy, put_along_axis, which writes to its argument.
Tensor put_along_axis(const Tensor& x, const Tensor& index, const Tensor& values, std::int64_t axis = -1,
                      Location where = Location::current());
/// x with the slices at the positions of a vector replaced by those of source, or by one number.
///
/// Shapes   x [..A, N, ..B], index [I], source [..A, I, ..B].
/// Source   PyTorch, torch.index_copy and torch.index_fill.
Tensor index_copy(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
                  Location where = Location::current());
Tensor index_fill(const Tensor& x, const Tensor& index, Scalar value, std::int64_t axis = 0,
                  Location where = Location::current());

}  // namespace fermata
