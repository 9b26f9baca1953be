// Normalizations. fermata/composites.h has layer_norm and rms_norm over the last axis.
//
// Names and defaults follow torch.nn.functional. DType: floating; f16 and bf16 are computed in f32 and rounded once.
// Optional parameters may be undefined. Errors: ShapeError if the shape of a parameter does not match.
#pragma once

#include <concepts>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// The sizes of the last axes of x, as a distinct argument type: layer_norm(x, NormalizedShape{4, 8}).
struct NormalizedShape {
  Shape sizes;
  explicit NormalizedShape(std::initializer_list<std::int64_t> list) : sizes(list) {}
  explicit NormalizedShape(const Shape& shape) : sizes(shape) {}
};
namespace detail {
Tensor layer_norm_over(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                       double eps, Location where);
Tensor rms_norm_over(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, double eps, Location where);
}  // namespace detail
/// (x - mean) / sqrt(var + eps) over all elements of the last axes; weight and bias have their shape.
Tensor layer_norm(const Tensor& x, const std::same_as<NormalizedShape> auto& over, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5, Location where = Location::current()) {
  return detail::layer_norm_over(x, over.sizes, weight, bias, eps, where);
}
Tensor rms_norm(const Tensor& x, const std::same_as<NormalizedShape> auto& over, const Tensor& weight = {},
                double eps = 1e-6, Location where = Location::current()) {
  return detail::rms_norm_over(x, over.sizes, weight, eps, where);
}

/// Normalizes each channel: in training over the batch and all other axes, in inference with the running mean and
/// variance. Training updates defined running statistics in place with weight `momentum`, using the unbiased variance.
///
/// Shapes   x [N, C, ..]; running_mean, running_var, weight and bias [C].
/// Errors   ValueError in inference without running statistics.
/// Source   Ioffe and Szegedy, "Batch normalization", ICML 2015.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5,
                  Location where = Location::current());
/// Normalizes each image and channel separately; otherwise as batch_norm.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5, Location where = Location::current());
/// Normalizes each image and group of channels separately.
///
/// Errors   ShapeError unless `groups` divides the number of channels.
/// Source   Wu and He, "Group normalization", ECCV 2018.
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Location where = Location::current());

/// x / (k + alpha * mean of squares of `size` neighboring channels) ^ beta.
Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1,
                           Location where = Location::current());
/// x divided by its p-norm along an axis, with the norm clamped at eps.
Tensor normalize(const Tensor& x, double p = 2, std::int64_t axis = 1, double eps = 1e-12,
                 Location where = Location::current());

}  // namespace fermata
