// Indexing as in NumPy: integers, slices, new axes, integer tensors and bool masks, mixed.
//
//   index(x, {3, Slice(1, -1), ellipsis, Slice(kNone, kNone, -1)})   a view
//   index(x, {rows, columns})                                        x[rows, columns]: integer tensors, broadcast
//   together x[mask], index(x, {ellipsis, mask})                              the elements where a mask is true
//   index_put(x, {Slice(), 0}, 1.5)                                  x[:, 0] = 1.5
//
// Shapes   integers take an axis away, slices keep it, new_axis adds one. Integer tensors and masks stand, broadcast to
//          one shape, where the first of them was if they are neighbors, else in front of all other axes. A mask
//          stands for as many axes as it has; one of no axes adds an axis, which has an element if it is true.
// Errors   IndexError for too many subscripts, a position out of range (of an integer at the call, of a tensor when the
//          value is computed) or a mask whose shape differs from the axes it stands for; DTypeError for a tensor that
//          is neither integer nor bool.
// A mask on its own is read to know how many elements it chooses (a counted sync), but not to write where it is true.
#pragma once

#include <initializer_list>
#include <optional>

#include "runtime/operand.h"

namespace fermata {

struct Ellipsis {};
struct NewAxis {};
/// As many full slices as there are axes without a subscript.
inline constexpr Ellipsis ellipsis{};
/// An axis of size 1.
inline constexpr NewAxis new_axis{};

/// start:stop:step as in Python: bounds count from the end where negative and are clamped; kNone leaves one out.
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
/// x[subscripts] = values, which broadcast and are cast; every alias of x sees it. Where positions repeat the last one
/// in row-major order wins; with `accumulate` all are added.
void index_put(const Tensor& x, std::initializer_list<Subscript> subscripts, const Operand& values,
               bool accumulate = false);

/// The elements of x where a mask of the same shape, or of the leading axes, is true: x[mask]. With `size`: so many,
/// the last ones repeated where there are fewer; nothing is read.
Tensor masked_select(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> size = {},
                     Location where = Location::current());

}  // namespace fermata
