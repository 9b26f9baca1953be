// Views of the same elements with other shapes and strides.
//
// A view aliases its base tensor in both modes: in-place writes through one are visible through the other. Negative
// axes count from the end. Errors: IndexError for axes and positions out of range, ShapeError for sizes that do not
// match.
#pragma once

#include <vector>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// Reshapes x in row-major order; one size may be -1 and is inferred. Returns a copy if no strides can express the
/// result (for example after a permute), as in NumPy.
Tensor reshape(const Tensor& x, const IntegerList& sizes, Location where = Location::current());
/// Axis i of the result is axis axes[i] of x.
Tensor permute(const Tensor& x, const IntegerList& axes, Location where = Location::current());
/// Swaps two axes, by default the last two.
Tensor transpose(const Tensor& x, std::int64_t first = -2, std::int64_t second = -1,
                 Location where = Location::current());
/// Inserts axes of size 1; `axes` are their positions in the result.
Tensor expand_dims(const Tensor& x, const IntegerList& axes, Location where = Location::current());
/// Removes the given axes, which must have size 1; by default all axes of size 1.
Tensor squeeze(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());
// A view of a temporary ends its handle, so that sum(reshape(x * 2, {-1, 4}), 1).sync() does not store x * 2.
inline Tensor reshape(Tensor&& x, const IntegerList& sizes, Location where = Location::current()) {
  return detail::consumed(x, reshape(std::as_const(x), sizes, where));
}
inline Tensor permute(Tensor&& x, const IntegerList& axes, Location where = Location::current()) {
  return detail::consumed(x, permute(std::as_const(x), axes, where));
}
inline Tensor transpose(Tensor&& x, std::int64_t first = -2, std::int64_t second = -1,
                        Location where = Location::current()) {
  return detail::consumed(x, transpose(std::as_const(x), first, second, where));
}
inline Tensor expand_dims(Tensor&& x, const IntegerList& axes, Location where = Location::current()) {
  return detail::consumed(x, expand_dims(std::as_const(x), axes, where));
}
inline Tensor squeeze(Tensor&& x, const IntegerList& axes = {}, Location where = Location::current()) {
  return detail::consumed(x, squeeze(std::as_const(x), axes, where));
}
/// Stretches axes of size 1 and prepends new axes. Read-only, because elements share memory.
Tensor broadcast_to(const Tensor& x, const IntegerList& sizes, Location where = Location::current());
/// Reverses the order of elements along the given axes, by default all.
Tensor flip(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());
/// Elements start, start + step, ..., excluding stop, along one axis. As in Python, negative positions count from the
/// end, bounds are clamped to the axis, and kNone omits a bound. slice(x, 0, kNone, kNone, -1) reverses x.
///
/// Errors   ValueError if step is 0.
Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start = kNone, std::int64_t stop = kNone,
             std::int64_t step = 1, Location where = Location::current());
/// The slice at one position along an axis, which is removed; x[i] is select(x, 0, i).
Tensor select(const Tensor& x, std::int64_t axis, std::int64_t position, Location where = Location::current());
/// Splits x into views along an axis: `parts` of equal size, or parts of the given sizes, which must sum to the size of
/// the axis.
std::vector<Tensor> split(const Tensor& x, std::int64_t parts, std::int64_t axis = 0,
                          Location where = Location::current());
std::vector<Tensor> split(const Tensor& x, const IntegerList& sizes, std::int64_t axis = 0,
                          Location where = Location::current());

}  // namespace fermata
