// See fermata/convolution.h.
#include "fermata/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fermata/ops.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/spatial_arguments.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// The attributes of ir/graph.h.
struct Arguments {
  Shape stride, padding, padding_end, dilation;
  std::vector<std::int64_t> attributes(std::int64_t groups) const {
    std::vector<std::int64_t> all{groups};
    for (const Shape* list : {&stride, &padding, &padding_end, &dilation})
      all.insert(all.end(), list->begin(), list->end());
    return all;
  }
};

void check_weight(std::string_view function, const Tensor& x, const Tensor& weight, std::size_t axes, Location where) {
  require_defined(function, weight, where);
  if (weight.rank() == axes + 2) return;
  throw ShapeError(1071, format_error(1071, "ShapeError", fmt::format("{}: weight has {} axes", function, axes + 2),
                                      {{"x", to_string(x.dtype(), x.shape()), ""},
                                       {"weight", to_string(weight.dtype(), weight.shape()), ""}},
                                      where));
}

/// "same" padding splits what the window reaches beyond one element.
void pad_to_same(std::string_view function, Arguments& a, const Tensor& weight, Location where) {
  for (std::size_t i = 0; i < a.stride.rank(); ++i) {
    if (a.stride[i] != 1)
      throw ValueError(1373, format_error(1373, "ValueError",
                                          fmt::format("{}: padding \"same\" needs strides of 1", function), {}, where));
    const std::int64_t all = a.dilation[i] * (weight.shape()[i + 2] - 1);
    a.padding[i] = all / 2, a.padding_end[i] = all - all / 2;
  }
}

Tensor with_bias(std::string_view function, const Tensor& y, const Tensor& bias, Location where) {
  if (!bias.defined()) return y;
  if (bias.rank() != 1 || bias.size(0) != y.size(1))
    throw ShapeError(
        1076, format_error(1076, "ShapeError", fmt::format("{}: the bias does not fit the filters", function),
                           {{"bias", to_string(bias.dtype(), bias.shape()), fmt::format("should be [{}]", y.size(1))}},
                           where));
  Shape open;
  for (unsigned i = 1; i < y.rank(); ++i) open.push_back(i == 1 ? y.size(1) : 1);
  return add({y, where}, reshape(bias, open, where));
}

Tensor convolve(std::string_view function, std::size_t axes, const Tensor& given, const Tensor& weight,
                const Tensor& bias, const IntegerList& stride, const Padding& padding, const IntegerList& dilation,
                std::int64_t groups, Location where) {
  const Images images(function, given, axes, where);
  check_weight(function, given, weight, axes, where);
  Arguments a{by_axis(function, "stride", stride, axes, 1, where),
              {},
              {},
              by_axis(function, "dilation", dilation, axes, 1, where)};
  a.padding = a.padding_end =
      by_axis(function, "padding", padding.name().empty() ? padding.sizes() : Shape{0}, axes, 0, where);
  if (padding.name() == "same")
    pad_to_same(function, a, weight, where);
  else if (!padding.name().empty() && padding.name() != "valid")
    throw ValueError(1373, format_error(1373, "ValueError",
                                        fmt::format("{}: padding \"{}\" is neither \"same\" nor \"valid\"", function,
                                                    padding.name()),
                                        {}, where));
  const std::vector<std::int64_t> attributes = a.attributes(groups);
  const Tensor y = general_call(Op::convolution, std::array{images.x, weight},
                                {.wanted = {}, .integers = attributes, .scalars = {}}, where);
  return images.restore(with_bias(function, y, bias, where), where);
}

Tensor convolve_transposed(std::string_view function, std::size_t axes, const Tensor& given, const Tensor& weight,
                           const Tensor& bias, const IntegerList& stride, const IntegerList& padding,
                           const IntegerList& output_padding, std::int64_t groups, const IntegerList& dilation,
                           Location where) {
  const Images images(function, given, axes, where);
  check_weight(function, given, weight, axes, where);
  Arguments a{by_axis(function, "stride", stride, axes, 1, where),
              by_axis(function, "padding", padding, axes, 0, where),
              {},
              by_axis(function, "dilation", dilation, axes, 1, where)};
  const Shape extra = by_axis(function, "output_padding", output_padding, axes, 0, where);
  // More elements at the end: less is cut off there, and beyond that there is nothing to add up.
  TensorType wanted{given.dtype(), {images.x.size(0), weight.size(1) * groups}};
  std::vector<std::int64_t> zeros(2 * axes, 0);
  for (std::size_t i = 0; i < axes; ++i) {
    a.padding_end.push_back(std::max<std::int64_t>(a.padding[i] - extra[i], 0));
    zeros[2 * (axes - 1 - i) + 1] = std::max<std::int64_t>(extra[i] - a.padding[i], 0);
    const std::int64_t reach = a.dilation[i] * (weight.shape()[i + 2] - 1) + 1;
    const std::int64_t whole = (images.x.shape()[i + 2] - 1) * a.stride[i] + reach;
    wanted.shape.push_back(whole - a.padding[i] - a.padding_end[i]);
  }
  const std::vector<std::int64_t> attributes = a.attributes(groups);
  Tensor y = general_call(Op::convolution_data_gradient, std::array{images.x, weight},
                          {.wanted = wanted, .integers = attributes, .scalars = {}}, where);
  if (std::ranges::any_of(zeros, [](std::int64_t n) { return n > 0; })) y = pad(y, zeros, PadMode::constant, 0, where);
  return images.restore(with_bias(function, y, bias, where), where);
}

}  // namespace

#define FERMATA_CONVOLUTION(name, axes)                                                                   \
  Tensor name(const Tensor& x, const Tensor& weight, const Tensor& bias, const IntegerList& stride,       \
              const Padding& padding, const IntegerList& dilation, std::int64_t groups, Location where) { \
    return convolve(#name, axes, x, weight, bias, stride, padding, dilation, groups, where);              \
  }
FERMATA_CONVOLUTION(conv1d, 1)
FERMATA_CONVOLUTION(conv2d, 2)
FERMATA_CONVOLUTION(conv3d, 3)

#define FERMATA_TRANSPOSED(name, axes)                                                                          \
  Tensor name(const Tensor& x, const Tensor& weight, const Tensor& bias, const IntegerList& stride,             \
              const IntegerList& padding, const IntegerList& output_padding, std::int64_t groups,               \
              const IntegerList& dilation, Location where) {                                                    \
    return convolve_transposed(#name, axes, x, weight, bias, stride, padding, output_padding, groups, dilation, \
                               where);                                                                          \
  }
FERMATA_TRANSPOSED(conv_transpose1d, 1)
FERMATA_TRANSPOSED(conv_transpose2d, 2)
FERMATA_TRANSPOSED(conv_transpose3d, 3)

}  // namespace fermata
