// Convolutions and transposed convolutions over one to three spatial axes.
//
// Names, arguments and defaults follow torch.nn.functional. As there, filters are not flipped (cross-correlation).
// Errors: ShapeError if channels or filters do not match, DTypeError or UnsupportedError unless x and weight have the
// same floating dtype, ValueError for strides, dilations or groups below 1.
#pragma once

#include <string_view>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// Zero padding: a number of elements on both sides of each spatial axis, "valid" (none), or "same", which keeps the
/// size and puts the extra element of an odd total at the end.
class Padding {
 public:
  Padding(std::string_view name) : name_(name) {}
  Padding(const char* name) : name_(name) {}
  Padding(std::initializer_list<std::int64_t> sizes) : sizes_(std::span(std::data(sizes), sizes.size())) {}
  Padding(const Shape& sizes) : sizes_(sizes) {}
  template <std::integral T> Padding(T size) : sizes_{static_cast<std::int64_t>(size)} {}
  std::string_view name() const { return name_; }
  const Shape& sizes() const { return sizes_; }

 private:
  std::string_view name_;  // empty if sizes are given
  Shape sizes_;
};

// Shapes   x [N, C, ..] or [C, ..], weight [O, C / groups, ..], bias [O] or undefined -> [N, O, ..] or [O, ..]. stride,
//          padding and dilation are one number, or one per spatial axis.
// DType    floating; f16 and bf16 accumulate in f32.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const IntegerList& stride = 1,
              const Padding& padding = 0, const IntegerList& dilation = 1, std::int64_t groups = 1,
              Location where = Location::current());
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const IntegerList& stride = 1,
              const Padding& padding = 0, const IntegerList& dilation = 1, std::int64_t groups = 1,
              Location where = Location::current());
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const IntegerList& stride = 1,
              const Padding& padding = 0, const IntegerList& dilation = 1, std::int64_t groups = 1,
              Location where = Location::current());

// Transposed convolution: the gradient of a convolution with respect to its input.
//
// Shapes   x [N, C, ..] or [C, ..], weight [C, O / groups, ..], bias [O] or undefined; along a spatial axis the result
//          has (size - 1) * stride - 2 * padding + dilation * (filter - 1) + output_padding + 1 elements.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const IntegerList& stride = 1,
                        const IntegerList& padding = 0, const IntegerList& output_padding = 0, std::int64_t groups = 1,
                        const IntegerList& dilation = 1, Location where = Location::current());
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const IntegerList& stride = 1,
                        const IntegerList& padding = 0, const IntegerList& output_padding = 0, std::int64_t groups = 1,
                        const IntegerList& dilation = 1, Location where = Location::current());
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const IntegerList& stride = 1,
                        const IntegerList& padding = 0, const IntegerList& output_padding = 0, std::int64_t groups = 1,
                        const IntegerList& dilation = 1, Location where = Location::current());

}  // namespace fermata
