// Convolution modules over one to three spatial axes.
//
// Parameter names, shapes and initial values follow torch.nn. Errors: ValueError FM1377 for sizes that are not positive
// or groups that do not divide the channels, FM1372 for an option that has neither one number nor one per spatial axis.
#pragma once

#include <array>
#include <concepts>
#include <initializer_list>

#include "fermata/convolution.h"
#include "fermata/nn/module.h"

namespace fermata::nn {

/// One number for all spatial axes, or a list with one per axis.
class PerAxis {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) PerAxis(T all) : values_{static_cast<std::int64_t>(all)} {}
  PerAxis(std::initializer_list<std::int64_t> each) : values_(each) {}
  const Shape& values() const { return values_; }

 private:
  Shape values_;
};

struct ConvOptions {
  PerAxis stride = 1;
  Padding padding = 0;  // numbers, "same" or "valid"
  PerAxis dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::f32;
};
/// weight [out, in / groups, ..], bias [out].
template <std::size_t D> struct Conv : Callable<Conv<D>>, Named {
  Conv(std::int64_t in, std::int64_t out, const PerAxis& kernel, const ConvOptions& options = {},
       Location where = Location::current());
  /// Shapes   x [N, in, ..] or [in, ..] -> [N, out, ..] or [out, ..]
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  std::array<std::int64_t, D> stride, padding, dilation;
  std::int64_t groups;
  bool same_size;  // padding is "same"
  FERMATA_TREE(weight, bias, stride, padding, dilation, groups, same_size)
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;

struct ConvTransposeOptions {
  PerAxis stride = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::f32;
};
/// weight [in, out / groups, ..], bias [out].
template <std::size_t D> struct ConvTranspose : Callable<ConvTranspose<D>>, Named {
  ConvTranspose(std::int64_t in, std::int64_t out, const PerAxis& kernel, const ConvTransposeOptions& options = {},
                Location where = Location::current());
  /// Shapes   x [N, in, ..] or [in, ..] -> [N, out, ..] or [out, ..]
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  std::array<std::int64_t, D> stride, padding, output_padding, dilation;
  std::int64_t groups;
  FERMATA_TREE(weight, bias, stride, padding, output_padding, dilation, groups)
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

}  // namespace fermata::nn
