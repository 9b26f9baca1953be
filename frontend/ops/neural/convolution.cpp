// See fermata/convolution.h.
#include "fermata/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "fermata/ops.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/spatial_arguments.h"
#include "frontend/ops/op_rules.h"
#include "ir/error.h"

namespace fermata {
namespace {

struct Arguments {
  Shape stride, padding, padding_end, dilation;
};

void check_weight(std::string_view function, const Tensor& x, const Tensor& weight, std::size_t axes, Location where) {
  require_defined(function, weight, where);
  if (weight.rank() == axes + 2) return;
  throw ShapeError(
      1071, format_error(
                1071, "ShapeError", fmt::format("{}: weight must have {} axes", function, axes + 2),
                {{"x", to_string(x.dtype(), x.shape()), ""}, {"weight", to_string(weight.dtype(), weight.shape()), ""}},
                where));
}

/// "same" padding splits what the window reaches beyond one element.
void pad_to_same(std::string_view function, Arguments& a, const Tensor& weight, Location where) {
  for (std::size_t i = 0; i < a.stride.rank(); ++i) {
    if (a.stride[i] != 1)
      throw ValueError(
          1373, format_error(1373, "ValueError", fmt::format("{}: padding \"same\" requires strides of 1", function),
                             {}, where));
    const std::int64_t all = a.dilation[i] * (weight.shape()[i + 2] - 1);
    a.padding[i] = all / 2, a.padding_end[i] = all - all / 2;
  }
}

Tensor with_bias(std::string_view function, const Tensor& y, const Tensor& bias, Location where) {
  if (!bias.defined()) return y;
  if (bias.rank() != 1 || bias.size(0) != y.size(1))
    throw ShapeError(
        1076, format_error(
                  1076, "ShapeError", fmt::format("{}: the shape of bias does not match the filters", function),
                  {{"bias", to_string(bias.dtype(), bias.shape()), fmt::format("should be [{}]", y.size(1))}}, where));
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
  const Tensor y = general_call<Op::convolution>({.groups = {groups},
                                                  .strides = {a.stride},
                                                  .padding = {a.padding},
                                                  .padding_end = {a.padding_end},
                                                  .dilation = {a.dilation}},
                                                 std::array{images.x, weight}, where);
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
  Tensor y = general_call<Op::convolution_data_gradient>({.groups = {groups},
                                                          .strides = {a.stride},
                                                          .padding = {a.padding},
                                                          .padding_end = {a.padding_end},
                                                          .dilation = {a.dilation},
                                                          .shape = {wanted.shape}},
                                                         std::array{images.x, weight}, where, wanted.dtype);
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

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor convolution(const VjpTensor& x, const VjpTensor& weight, const VjpArgs& args) {
  return call(Op::convolution, std::array{x.tensor(), weight.tensor()}, args.attributes());
}
/// One of its gradients; the result has the type of an operand of `args`, or is as long as one.
VjpTensor gradient(Op op, const VjpTensor& a, const VjpTensor& b, const Shape& shape, const VjpArgs& args) {
  return call(op, std::array{a.tensor(), b.tensor()}, args.attributes(), {a.dtype(), shape});
}
constexpr Op kData = Op::convolution_data_gradient, kWeight = Op::convolution_weight_gradient;

VjpTensor convolution_vjp(const VjpArgs& args, unsigned) {
  return gradient(kData, args.g, args.x[1], args.shape(0), args);
}
VjpTensor convolution_weight_vjp(const VjpArgs& args, unsigned) {
  return gradient(kWeight, args.x[0], args.g, args.shape(1), args);
}
VjpTensor data_gradient_vjp(const VjpArgs& args, unsigned) { return convolution(args.g, args.x[1], args); }
VjpTensor data_gradient_weight_vjp(const VjpArgs& args, unsigned) {
  return gradient(kWeight, args.g, args.x[0], args.shape(1), args);
}
VjpTensor weight_gradient_vjp(const VjpArgs& args, unsigned) {
  return gradient(kData, args.x[1], args.g, args.shape(0), args);
}
VjpTensor weight_gradient_gradient_vjp(const VjpArgs& args, unsigned) { return convolution(args.x[0], args.g, args); }

/// [B, .., n, ..] as [.., B * n, ..], where n is at `axis` of the result.
VjpTensor merged(const VjpTensor& x, std::int64_t axis) {
  const Shape sizes = x.shape();
  std::vector<std::int64_t> order;
  Shape flat;
  for (std::int64_t i = 1; i < sizes.rank(); ++i) {
    if (i - 1 == axis) order.push_back(0);
    order.push_back(i);
    flat.push_back(sizes[static_cast<std::size_t>(i)] * (i - 1 == axis ? sizes[0] : 1));
  }
  return vjp::reshape(vjp::permute(x, order), flat);
}
/// The inverse.
VjpTensor apart(const VjpTensor& x, std::int64_t axis, std::int64_t batch) {
  const Shape sizes = x.shape();
  Shape open;
  std::vector<std::int64_t> order{axis};
  for (std::int64_t i = 0; i < sizes.rank(); ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if (i == axis)
      open.push_back(batch), open.push_back(size / batch);
    else
      open.push_back(size);
    order.push_back(i < axis ? i : i + 1);
  }
  return vjp::permute(vjp::reshape(x, open), order);
}

/// Groups divide the channels of images and the filters.
constexpr std::int64_t kImages = 0, kChannels = 1, kFilters = 0;

Tensor convolution_with(const BatchedCall& call, std::span<const VjpTensor> operands, std::int64_t groups,
                        std::int64_t result_axis) {
  auto attributes = attributes_of<ops::Convolution>(call.attributes);  // those of its gradients as well
  attributes.groups.value *= groups;
  Shape shape = call.type.shape;
  shape[static_cast<std::size_t>(result_axis)] *= call.size;
  const VjpTensor y = vjp::call(call.op, std::array{operands[0].tensor(), operands[1].tensor()}, encode(attributes),
                                {call.type.dtype, shape});
  return apart(y, result_axis, call.size).tensor();
}

/// Images of all batch elements side by side where only they differ; else each element has groups of its own.
Tensor batched_convolution(const BatchedCall& call) {
  if (call.size == 0) return vjp::full(0, call.whole(), call.operands[0].value).tensor();
  const bool of_filters = call.op == Op::convolution_weight_gradient;
  if (!call.operands[1].batched && !of_filters) {
    const std::array operands{merged(call.operands[0].value, kImages), VjpTensor(call.operands[1].value)};
    return convolution_with(call, operands, 1, kImages);
  }
  const std::int64_t second = of_filters ? kChannels : kFilters, result = of_filters ? kFilters : kChannels;
  const std::array operands{merged(call.with_batch(0), kChannels), merged(call.with_batch(1), second)};
  return convolution_with(call, operands, call.size, result);
}

}  // namespace

FERMATA_OP_RULES(convolution, batched_convolution, gradient(convolution_vjp, kSecond),
                 gradient(convolution_weight_vjp, kFirst));
FERMATA_OP_RULES(convolution_data_gradient, batched_convolution, gradient(data_gradient_vjp, kSecond),
                 gradient(data_gradient_weight_vjp, kFirst));
FERMATA_OP_RULES(convolution_weight_gradient, batched_convolution, gradient(weight_gradient_vjp, kSecond),
                 gradient(weight_gradient_gradient_vjp, kFirst));

}  // namespace vjp

}  // namespace fermata
