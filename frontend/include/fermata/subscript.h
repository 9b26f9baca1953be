// NumPy-style indexing with any mix of integers, slices, new axes, integer tensors and bool masks.
//
//   index(x, {3, Slice(1, -1), ellipsis, Slice(kNone, kNone, -1)})   a view
//   index(x, {rows, columns})                                        x[rows, columns]: broadcast integer tensors
//   x[mask], index(x, {ellipsis, mask})                              the elements where a mask is true
//   index_put(x, {Slice(), 0}, 1.5)                                  x[:, 0] = 1.5
//
// Shapes   integers remove an axis, slices keep it, new_axis adds one. Integer tensors and masks broadcast to one
//          shape. It replaces their axes if these are adjacent, else it comes before all other axes. A mask covers as
//          many axes as it has; a 0-d mask adds an axis, of size 1 if it is true, else 0.
// Errors   IndexError for too many subscripts, an index out of range (for integers at the call, for tensors when the
//          value is computed) or a mask whose shape differs from the axes it covers; DTypeError for a tensor that is
//          neither integer nor bool.
// Reading x[mask] syncs to find the number of elements; writing through a mask does not.
#pragma once

#include <initializer_list>
#include <optional>

#include "runtime/operand.h"

namespace fermata {

struct Ellipsis {};
struct NewAxis {};
/// Full slices for all axes without a subscript.
inline constexpr Ellipsis ellipsis{};
/// An axis of size 1.
inline constexpr NewAxis new_axis{};

/// start:stop:step as in Python: negative bounds count from the end, bounds are clamped, and kNone omits one.
struct Slice {
  constexpr explicit Slice(std::int64_t start = kNone, std::int64_t stop = kNone, std::int64_t step = 1)
      : start(start), stop(stop), step(step) {}
  std::int64_t start, stop, step;
};

class Subscript {
 public:
  enum class Kind : std::uint8_t { integer, slice, ellipsis, new_axis, tensor };
  template <std::integral T>
  requires(!std::same_as<T, bool>) Subscript(T position)
      : kind_(Kind::integer), slice_(static_cast<std::int64_t>(position)) {}
  Subscript(const Slice& slice) : kind_(Kind::slice), slice_(slice) {}
  Subscript(Ellipsis) : kind_(Kind::ellipsis) {}
  Subscript(NewAxis) : kind_(Kind::new_axis) {}
  Subscript(Tensor tensor) : kind_(Kind::tensor), tensor_(std::move(tensor)) {}

  Kind kind() const { return kind_; }
  std::int64_t position() const { return slice_.start; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Kind kind_;
  Slice slice_;
  Tensor tensor_;
};

/// x[subscripts]. A view of x unless a subscript is a tensor.
Tensor index(const Tensor& x, std::initializer_list<Subscript> subscripts, Location where = Location::current());
/// x[subscripts] = values, which are broadcast and cast; visible through every alias of x. If positions repeat, the
/// last value in row-major order wins; with `accumulate` all are added.
void index_put(const Tensor& x, std::initializer_list<Subscript> subscripts, const Operand& values,
               bool accumulate = false);

/// x[mask]: the elements of x where a mask of the same shape, or of the leading axes, is true. With `size`: exactly
/// that many, repeating the last one if there are fewer; nothing is read.
Tensor masked_select(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> size = {},
                     Location where = Location::current());

}  // namespace fermata
