// Arguments that are one number or one for each spatial axis, as convolutions and pools take them.
#pragma once

#include <string_view>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// One number for every axis; ValueError FM1372 where there are neither one nor `axes` of them, or one is below
/// `least`.
Shape by_axis(std::string_view function, std::string_view argument, std::span<const std::int64_t> given,
              std::size_t axes, std::int64_t least, Location where);

/// x with an axis of images in front, where it has only channels and `axes` spatial axes; ShapeError FM1071 for any
/// other number of axes.
class Images {
 public:
  Images(std::string_view function, const Tensor& given, std::size_t axes, Location where);
  /// The result without the axis that was added.
  Tensor restore(const Tensor& y, Location where) const;
  Tensor x;

 private:
  bool added_;
};

}  // namespace fermata
