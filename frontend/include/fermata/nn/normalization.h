// Normalization modules.
//
// Parameter names and defaults follow torch.nn. Each class works for any number of spatial axes. Running statistics are
// Buffers, which training writes in place. Inside grad(f)(module) and vmap a module is a copy, whose writes are lost
// unless f returns it.
#pragma once

#include <vector>

#include "fermata/nn/module.h"

namespace fermata::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // of the running statistics
  bool affine = true;     // weight and bias
  bool track_running_stats = true;
  DType dtype = DType::f32;
};
/// Normalizes each channel of x [N, C, ..]: in training over the batch and all other axes, otherwise with the running
/// mean and variance if they are tracked.
struct BatchNorm : Callable<BatchNorm>, Named {
  explicit BatchNorm(std::int64_t channels, const BatchNormOptions& options = {}, Location where = Location::current());
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;
  double eps;
  Setting momentum;
  Training training;
  FERMATA_TREE(weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum, training)
};
using BatchNorm1d = BatchNorm;
using BatchNorm2d = BatchNorm;
using BatchNorm3d = BatchNorm;

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
  DType dtype = DType::f32;
};
/// Normalizes each image and channel separately. As in torch.nn, num_batches_tracked is not updated.
struct InstanceNorm : Callable<InstanceNorm>, Named {
  explicit InstanceNorm(std::int64_t channels, const InstanceNormOptions& options = {},
                        Location where = Location::current());
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;
  double eps;
  Setting momentum;
  Training training;
  FERMATA_TREE(weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum, training)
};

struct NormOptions {
  double eps = 1e-5;
  bool affine = true;  // weight and bias
  DType dtype = DType::f32;
};
/// Normalizes each image and group of channels separately.
struct GroupNorm : Callable<GroupNorm>, Named {
  GroupNorm(std::int64_t groups, std::int64_t channels, const NormOptions& options = {},
            Location where = Location::current());
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  std::int64_t groups;
  double eps;
  FERMATA_TREE(weight, bias, groups, eps)
};
/// Normalizes over the last axes, given by their sizes.
struct LayerNorm : Callable<LayerNorm>, Named {
  explicit LayerNorm(const IntegerList& sizes, const NormOptions& options = {}, Location where = Location::current());
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight, bias;
  std::vector<std::int64_t> sizes;
  double eps;
  FERMATA_TREE(weight, bias, sizes, eps)
};
/// x / sqrt(mean(x * x) + eps) over the last axes, times weight.
struct RMSNorm : Callable<RMSNorm>, Named {
  explicit RMSNorm(const IntegerList& sizes, const NormOptions& options = {.eps = 1e-6},
                   Location where = Location::current());
  Tensor forward(const Tensor& x, Location where = Location::current()) const;
  Tensor weight;
  std::vector<std::int64_t> sizes;
  double eps;
  FERMATA_TREE(weight, sizes, eps)
};

}  // namespace fermata::nn
