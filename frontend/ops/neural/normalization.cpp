// See fermata/normalization.h.
#include "fermata/normalization.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/autograd.h"
#include "fermata/composites.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/reductions.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

void require_shape(std::string_view function, std::string_view label, const Tensor& parameter, const Shape& shape,
                   const Tensor& x, Location where) {
  if (!parameter.defined() || parameter.shape() == shape) return;
  throw ShapeError(
      1021, format_error(1021, "ShapeError", fmt::format("{}: the shape of {} does not match x", function, label),
                         {{"x", to_string(x.dtype(), x.shape()), ""},
                          {label, to_string(parameter.dtype(), parameter.shape()), "should be " + to_string(shape)}},
                         where));
}

struct Moments {
  VjpTensor centered, variance;  // variance with the axes kept, and not corrected
  VjpTensor mean;
};
Moments moments(const VjpTensor& x, const Shape& axes, Location where) {
  const VjpTensor m = mean(x.tensor(), axes, true, where), centered = x - m;
  return {centered, mean(vjp::square(centered).tensor(), axes, true, where), m};
}

/// Parameters of the channels, which are axis 1, aligned with x.
Shape channel_shape(const VjpTensor& x) {
  Shape shape{x.shape()[1]};
  for (unsigned i = 2; i < x.shape().rank(); ++i) shape.push_back(1);
  return shape;
}
VjpTensor affine(const FloatingScope& in, VjpTensor y, const Tensor& weight, const Tensor& bias, const Shape& shape) {
  if (weight.defined()) y = y * vjp::reshape(in(weight), shape);
  return bias.defined() ? y + vjp::reshape(in(bias), shape) : y;
}

void require_channels(std::string_view function, const Tensor& x, Location where) {
  require_defined(function, x, where);
  if (x.rank() >= 2) return;
  throw ShapeError(1071,
                   format_error(1071, "ShapeError", fmt::format("{}: x must have batch and channel axes", function),
                                describe(x), where));
}

Shape last_axes(std::string_view function, const Tensor& x, const Shape& sizes, Location where) {
  require_defined(function, x, where);
  Shape axes, last;
  for (unsigned i = 0; i < sizes.rank() && sizes.rank() <= x.rank(); ++i) {
    axes.push_back(x.rank() - sizes.rank() + i);
    last.push_back(x.shape()[x.rank() - sizes.rank() + i]);
  }
  if (sizes.rank() == 0 || last != sizes)
    throw ShapeError(1021, format_error(1021, "ShapeError",
                                        fmt::format("{}: the last axes of x are not {}", function, to_string(sizes)),
                                        describe(x), where));
  return axes;
}

/// Moves a running statistic towards what was seen.
void move_towards(const Tensor& running, const VjpTensor& seen, double momentum, Location where) {
  if (!running.defined()) return;
  const NoGradGuard no_history;
  const VjpTensor before = running,
                  now = vjp::cast(vjp::reshape(seen.tensor().detach(), running.shape()), running.dtype());
  running.assign({(before * (1 - momentum) + now * momentum).tensor(), where});
}

/// batch_norm and instance_norm differ in the axes that statistics are over.
Tensor channels_normalized(std::string_view function, const Tensor& x, const Tensor& running_mean,
                           const Tensor& running_var, const Tensor& weight, const Tensor& bias, bool own_statistics,
                           bool over_images, double momentum, double eps, Location where) {
  require_channels(function, x, where);
  const Shape channels{x.size(1)};
  require_shape(function, "running_mean", running_mean, channels, x, where);
  require_shape(function, "running_var", running_var, channels, x, where);
  require_shape(function, "weight", weight, channels, x, where),
      require_shape(function, "bias", bias, channels, x, where);
  constexpr bool kKeepsDtype = true;  // inside an autocast region: what follows is as narrow as what came before
  const FloatingScope in(function, {&x}, where, kKeepsDtype);
  const VjpTensor wide = in(x);
  const Shape shape = channel_shape(wide);
  if (!own_statistics) {
    if (!running_mean.defined() || !running_var.defined())
      fail_parameter(function, "inference requires a running mean and variance", where);
    // One factor for each channel, so that elements are multiplied once.
    VjpTensor scale = vjp::rsqrt(vjp::reshape(in(running_var), shape) + eps);
    if (weight.defined()) scale = scale * vjp::reshape(in(weight), shape);
    const VjpTensor y = (wide - vjp::reshape(in(running_mean), shape)) * scale;
    return in.result(affine(in, y, {}, bias, shape));
  }
  Shape axes;
  double count = 1;
  for (unsigned i = 0; i < x.rank(); ++i)
    if (i > 1 || (i == 0 && over_images)) axes.push_back(i), count *= static_cast<double>(x.size(i));
  if (axes.empty()) fail_parameter(function, "no elements to normalize over", where);
  const Moments m = moments(wide, axes, where);
  if (running_mean.defined() || running_var.defined()) {
    const auto over = [&](const VjpTensor& v) { return over_images ? v : VjpTensor(mean(v.tensor(), 0, true, where)); };
    move_towards(running_mean, over(m.mean), momentum, where);
    move_towards(running_var, over(m.variance) * (count / (count - 1)), momentum, where);
  }
  return in.result(affine(in, m.centered * vjp::rsqrt(m.variance + eps), weight, bias, shape));
}

}  // namespace

Tensor detail::layer_norm_over(const Tensor& x, const Shape& sizes, const Tensor& weight, const Tensor& bias,
                               double eps, Location where) {
  const Shape axes = last_axes("layer_norm", x, sizes, where);
  require_shape("layer_norm", "weight", weight, sizes, x, where),
      require_shape("layer_norm", "bias", bias, sizes, x, where);
  if (sizes.rank() == 1) return layer_norm(x, weight, bias, eps, where);
  const FloatingScope in("layer_norm", {&x}, where);
  const Moments m = moments(in(x), axes, where);
  return in.result(affine(in, m.centered * vjp::rsqrt(m.variance + eps), weight, bias, sizes));
}

Tensor detail::rms_norm_over(const Tensor& x, const Shape& sizes, const Tensor& weight, double eps, Location where) {
  const Shape axes = last_axes("rms_norm", x, sizes, where);
  require_shape("rms_norm", "weight", weight, sizes, x, where);
  if (sizes.rank() == 1) return rms_norm(x, weight, eps, where);
  const FloatingScope in("rms_norm", {&x}, where);
  const VjpTensor wide = in(x), power = mean(vjp::square(wide).tensor(), axes, true, where);
  return in.result(affine(in, wide * vjp::rsqrt(power + eps), weight, {}, sizes));
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps, Location where) {
  return channels_normalized("batch_norm", x, running_mean, running_var, weight, bias, training, true, momentum, eps,
                             where);
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps, Location where) {
  return channels_normalized("instance_norm", x, running_mean, running_var, weight, bias, use_input_stats, false,
                             momentum, eps, where);
}

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias, double eps,
                  Location where) {
  require_channels("group_norm", x, where);
  if (groups < 1 || x.size(1) % groups != 0)
    throw ShapeError(
        1019, format_error(1019, "ShapeError", fmt::format("group_norm: {} groups do not divide the channels", groups),
                           {{"x", to_string(x.dtype(), x.shape()), fmt::format("axis 1 is {}", x.size(1))}}, where));
  const Shape channels{x.size(1)};
  require_shape("group_norm", "weight", weight, channels, x, where);
  require_shape("group_norm", "bias", bias, channels, x, where);
  const FloatingScope in("group_norm", {&x}, where);
  Shape open{x.size(0), groups, x.size(1) / groups}, axes{2};
  for (unsigned i = 2; i < x.rank(); ++i) open.push_back(x.size(i)), axes.push_back(i + 1);
  const Moments m = moments(vjp::reshape(in(x), open), axes, where);
  const VjpTensor y = vjp::reshape(m.centered * vjp::rsqrt(m.variance + eps), x.shape());
  return in.result(affine(in, y, weight, bias, channel_shape(y)));
}

Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha, double beta, double k, Location where) {
  require_channels("local_response_norm", x, where);
  if (size < 1) fail_parameter("local_response_norm", "the size is below 1", where);
  const FloatingScope in("local_response_norm", {&x}, where);
  const VjpTensor wide = in(x);
  std::vector<std::int64_t> pads(2 * (x.rank() - 1u), 0);
  pads[pads.size() - 2] = size / 2, pads.back() = (size - 1) / 2;
  const Tensor squares = pad(vjp::square(wide).tensor(), pads, PadMode::constant, 0, where);
  const VjpTensor power = mean(unfold(squares, 1, size, 1, 1, where), -1, false, where);
  return in.result(wide / vjp::pow(power * alpha + k, beta));
}

Tensor normalize(const Tensor& x, double p, std::int64_t axis, double eps, Location where) {
  const FloatingScope in("normalize", {&x}, where);
  if (!(p > 0)) fail_parameter("normalize", "the order is not positive", where);
  const VjpTensor wide = in(x);
  const auto total = [&](const VjpTensor& v) { return VjpTensor(sum(v.tensor(), axis, true, where)); };
  if (p == 2) return in.result(wide * vjp::rsqrt(vjp::maximum(total(vjp::square(wide)), eps * eps)));
  const VjpTensor length = std::isinf(p) ? VjpTensor(max(vjp::abs(wide).tensor(), axis, true, where))
                           : p == 1      ? total(vjp::abs(wide))
                                         : vjp::pow(total(vjp::pow(vjp::abs(wide), p)), 1 / p);
  return in.result(wide / vjp::maximum(length, eps));
}

}  // namespace fermata
