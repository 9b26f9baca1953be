// See fermata/nn/normalization.h.
#include "fermata/nn/normalization.h"

#include "fermata/autograd.h"
#include "fermata/normalization.h"
#include "fermata/ops.h"
#include "frontend/nn/parameter.h"
#include "frontend/ops/neural/floating_scope.h"

namespace fermata::nn {
namespace {

template <class Norm, class Options>
void make_channels(Norm& norm, std::string_view module, std::int64_t channels, const Options& o, Location where) {
  require_positive(module, {{"channels", channels}}, where);
  if (o.affine) {
    norm.weight = constant_parameter(channels, 1, o.dtype, where);
    norm.bias = constant_parameter(channels, 0, o.dtype, where);
  }
  if (!o.track_running_stats) return;
  norm.running_mean.value = constant_buffer(channels, 0, o.dtype, where);
  norm.running_var.value = constant_buffer(channels, 1, o.dtype, where);
  norm.num_batches_tracked.value = constant_buffer({}, 0, DType::i64, where);
}

void count_batch(const BatchNorm& norm, Location where) {
  const Tensor& count = norm.num_batches_tracked;
  if (!norm.training || !count.defined()) return;
  const NoGradGuard no_history;
  count.assign({add({count, where}, {1, where}), where});
}

/// Weights of the last axes, whose sizes are remembered.
template <class Norm> void make_last_axes(Norm& norm, std::string_view module, const NormOptions& o, Location where) {
  if (norm.sizes.empty()) fail_parameter(module, "needs the size of an axis", where);
  for (const std::int64_t size : norm.sizes) require_positive(module, {{"size", size}}, where);
  if (o.affine) norm.weight = constant_parameter(norm.sizes, 1, o.dtype, where);
}

}  // namespace

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormOptions& options, Location where)
    : eps(options.eps), momentum(options.momentum) {
  make_channels(*this, "BatchNorm", channels, options, where);
}
Tensor BatchNorm::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  count_batch(*this, where);
  const bool own = training || !running_mean.value.defined();
  return batch_norm(x, running_mean, running_var, weight, bias, own, momentum, eps, where);
}

InstanceNorm::InstanceNorm(std::int64_t channels, const InstanceNormOptions& options, Location where)
    : eps(options.eps), momentum(options.momentum) {
  make_channels(*this, "InstanceNorm", channels, options, where);
}
Tensor InstanceNorm::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  const bool own = training || !running_mean.value.defined();
  return instance_norm(x, running_mean, running_var, weight, bias, own, momentum, eps, where);
}

GroupNorm::GroupNorm(std::int64_t groups_, std::int64_t channels, const NormOptions& options, Location where)
    : groups(groups_), eps(options.eps) {
  require_positive("GroupNorm", {{"groups", groups}, {"channels", channels}}, where);
  if (channels % groups != 0) fail_parameter("GroupNorm", "the groups do not divide the channels", where);
  if (!options.affine) return;
  weight = constant_parameter(channels, 1, options.dtype, where);
  bias = constant_parameter(channels, 0, options.dtype, where);
}
Tensor GroupNorm::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  return group_norm(x, groups, weight, bias, eps, where);
}

LayerNorm::LayerNorm(const IntegerList& sizes_, const NormOptions& options, Location where)
    : sizes(sizes_.begin(), sizes_.end()), eps(options.eps) {
  make_last_axes(*this, "LayerNorm", options, where);
  if (options.affine) bias = constant_parameter(sizes, 0, options.dtype, where);
}
Tensor LayerNorm::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  return fermata::detail::layer_norm_over(x, Shape(sizes), weight, bias, eps, where);
}

RMSNorm::RMSNorm(const IntegerList& sizes_, const NormOptions& options, Location where)
    : sizes(sizes_.begin(), sizes_.end()), eps(options.eps) {
  make_last_axes(*this, "RMSNorm", options, where);
}
Tensor RMSNorm::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  return fermata::detail::rms_norm_over(x, Shape(sizes), weight, eps, where);
}

}  // namespace fermata::nn
