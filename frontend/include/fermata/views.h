// Views: other ways to look at the same elements.
//
// A view aliases the tensor it was made from, in both modes: what is written in place through one is seen through the
// other. Axes are counted from the end where negative. Errors: IndexError for axes and positions out of range,
// ShapeError for sizes that do not fit.
#pragma once

#include <vector>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// The same elements in row-major order under another shape; one size may be -1, what is left over. Where no strides
/// express that (after a permute, say) the result is a tensor of its own, as in NumPy.
Tensor reshape(const Tensor& x, const IntegerList& sizes, Location where = Location::current());
/// Axis i of the result is axis axes[i] of x.
Tensor permute(const Tensor& x, const IntegerList& axes, Location where = Location::current());
/// Two axes exchanged: by default the last two.
Tensor transpose(const Tensor& x, std::int64_t first = -2, std::int64_t second = -1,
                 Location where = Location::current());
/// With axes of size 1 inserted: `axes` are their positions in the result.
Tensor expand_dims(const Tensor& x, const IntegerList& axes, Location where = Location::current());
/// Without the named axes, which must have size 1; without all that have, if none is named.
Tensor squeeze(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());
/// Axes of size 1 stretched and new axes prepended. Cannot be written to: elements share memory.
Tensor broadcast_to(const Tensor& x, const IntegerList& sizes, Location where = Location::current());
/// With the order of the elements along the axes reversed; along all of them if none is named.
Tensor flip(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());
/// Elements start, start + step, ... before stop along one axis. As in Python: negative positions count from the end,
/// bounds beyond the axis are moved to it, and kNone leaves a bound out. slice(x, 0, kNone, kNone, -1) is x backwards.
///
/// Errors   ValueError if step is 0.
Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start = kNone, std::int64_t stop = kNone,
             std::int64_t step = 1, Location where = Location::current());
/// The part at one position along an axis, which is absent from the result; x[i] is select(x, 0, i).
Tensor select(const Tensor& x, std::int64_t axis, std::int64_t position, Location where = Location::current());
/// Views of consecutive parts along an axis: so many of equal size, or parts of the sizes given, which add up to the
/// size of the axis.
std::vector<Tensor> split(const Tensor& x, std::int64_t parts, std::int64_t axis = 0,
                          Location where = Location::current());
std::vector<Tensor> split(const Tensor& x, const IntegerList& sizes, std::int64_t axis = 0,
                          Location where = Location::current());

}  // namespace fermata
