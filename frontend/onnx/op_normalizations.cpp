// Normalizations and losses.
#include <array>
#include <numeric>

#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/layers.h"
#include "fermata/normalization.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/reductions.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

using Integers = std::vector<std::int64_t>;
Tensor as(const Tensor& x, DType dtype, const NodeCall& c) { return astype(x, dtype, c.where); }

void batch_norm_op(NodeCall& c) {
  const Tensor x = c.in(0), weight = c.in(1), bias = c.in(2), running_mean = c.in(3), running_var = c.in(4);
  const double eps = c.attr("epsilon", 1e-5);
  if (c.attr("training_mode", std::int64_t{0}) == 0)
    return c.give(as(batch_norm(x, running_mean, running_var, weight, bias, false, 0.1, eps, c.where), x.dtype(), c));
  const double momentum = c.attr("momentum", 0.9);
  Integers axes{0};
  for (unsigned i = 2; i < x.rank(); ++i) axes.push_back(i);
  const Tensor m = mean(x, axes, false, c.where), v = var(x, axes, false, 0, c.where);
  c.give(batch_norm(x, m, v, weight, bias, false, 0.1, eps, c.where));
  c.give(as(running_mean * momentum + m * (1 - momentum), running_mean.dtype(), c));
  c.give(as(running_var * momentum + v * (1 - momentum), running_var.dtype(), c));
}

void instance_norm_op(NodeCall& c) {
  c.give(instance_norm(c.in(0), {}, {}, c.in(1), c.in(2), true, 0.1, c.attr("epsilon", 1e-5), c.where));
}
void group_norm_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t groups = c.attr("num_groups", std::int64_t{1});
  Tensor weight = c.in(1), bias = c.in(2);
  if (c.opset() < 21 && groups > 0 && weight.element_count() == groups && groups != x.size(1)) {
    // One number for each group.
    const std::int64_t each = x.size(1) / groups;
    const auto spread = [&](const Tensor& v) {
      return reshape(broadcast_to(reshape(v, {groups, 1}, c.where), {groups, each}, c.where), {-1}, c.where);
    };
    weight = spread(weight), bias = spread(bias);
  }
  c.give(group_norm(x, groups, weight, bias, c.attr("epsilon", 1e-5), c.where));
}

Integers axes_from(const Tensor& x, std::int64_t axis) {
  Integers axes;
  for (std::int64_t i = axis; i < static_cast<std::int64_t>(x.rank()); ++i) axes.push_back(i);
  return axes;
}
void layer_norm_op(NodeCall& c) {
  const Tensor x = c.in(0), weight = c.in(1), bias = c.optional(2);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{-1}), x.rank());
  const double eps = c.attr("epsilon", 1e-5);
  const Integers axes = axes_from(x, axis);
  const Shape sizes = sizes_from(x, axis);
  if (weight.shape() == sizes && (!bias.defined() || bias.shape() == sizes)) {
    c.give(layer_norm(x, NormalizedShape(sizes), weight, bias, eps, c.where));
  } else {
    const Tensor wide = as(x, DType::f32, c);
    const Tensor centered = wide - mean(wide, axes, true, c.where);
    Tensor y = centered * rsqrt(mean(centered * centered, axes, true, c.where) + eps);
    y = as(y, x.dtype(), c) * weight;
    c.give(bias.defined() ? y + bias : y);
  }
  if (!c.wants(1) && !c.wants(2)) return;
  const DType stash = dtype_of_code(c.attr("stash_type", std::int64_t{1}), c.where);
  const Tensor wide = as(x, stash, c);
  c.give(mean(wide, axes, true, c.where));
  c.give(rsqrt(var(wide, axes, true, 0, c.where) + eps));
}
void rms_norm_op(NodeCall& c) {
  const Tensor x = c.in(0), weight = c.in(1);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{-1}), x.rank());
  const Shape sizes = sizes_from(x, axis);
  const double eps = c.attr("epsilon", 1e-5);
  if (weight.shape() == sizes) return c.give(rms_norm(x, NormalizedShape(sizes), weight, eps, c.where));
  const Tensor wide = as(x, DType::f32, c);
  const Tensor y = wide * rsqrt(mean(wide * wide, axes_from(x, axis), true, c.where) + eps);
  c.give(as(y, x.dtype(), c) * weight);
}

void mean_variance_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const Integers axes = c.attr_integers("axes", {0, 2, 3});
  const Tensor centered = x - mean(x, axes, true, c.where);
  c.give(centered / (sqrt(mean(centered * centered, axes, true, c.where)) + 1e-9));
}
void lp_normalization(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t axis = c.attr("axis", std::int64_t{-1});
  const Tensor length =
      c.attr("p", std::int64_t{2}) == 1 ? sum(abs(x), axis, true, c.where) : sqrt(sum(x * x, axis, true, c.where));
  c.give(where(length == 0, 0, x / length));
}
void local_response_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t size = c.attr("size", std::int64_t{1});
  const double alpha = c.attr("alpha", 1e-4), beta = c.attr("beta", 0.75), k = c.attr("bias", 1.0);
  if (size < 1 || x.rank() < 2) c.fail("size must be positive, and the input have channels");
  // Neighbors: of an even number one more comes after.
  Integers around(2 * std::size_t{x.rank() - 1u}, 0);
  around[around.size() - 2] = (size - 1) / 2, around.back() = size / 2;
  const Tensor squares = pad(x * x, around, PadMode::constant, 0, c.where);
  const Tensor sums = sum(unfold(squares, 1, size, 1, 1, c.where), -1, false, c.where);
  c.give(x / pow(sums * (alpha / static_cast<double>(size)) + k, beta));
}

/// -log probability of the labels, with classes along axis 1.
Tensor nll(const NodeCall& c, const Tensor& scores, const Tensor& labels, const Tensor& weight) {
  Tensor index = as(labels, DType::i64, c);
  Tensor counts;
  const Attribute* const ignored = c.attribute("ignore_index", AttributeType::integer);
  if (ignored != nullptr) {
    counts = index != ignored->integer;
    index = where(counts, index, 0);
  }
  Tensor loss = -squeeze(gather(scores, expand_dims(index, 1, c.where), 1, c.where), 1, c.where);
  Tensor share;
  if (weight.defined()) share = take(weight, index, 0, c.where);
  if (counts.defined()) share = share.defined() ? where(counts, share, 0) : as(counts, scores.dtype(), c);
  if (share.defined()) loss = loss * share;
  const std::string reduction = c.attr("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss, {}, false, c.where);
  return share.defined() ? sum(loss, {}, false, c.where) / sum(share, {}, false, c.where)
                         : mean(loss, {}, false, c.where);
}
void nll_loss_op(NodeCall& c) { c.give(nll(c, c.in(0), c.in(1), c.optional(2))); }
void softmax_cross_entropy_op(NodeCall& c) {
  const Tensor log_probabilities = log_softmax(c.in(0), 1, c.where);
  c.give(nll(c, log_probabilities, c.in(1), c.optional(2)));
  c.give(log_probabilities);
}

void dropout_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const bool training = c.has(2) && c.integer(2) != 0;
  const double ratio = c.has_attribute("ratio") ? c.attr("ratio", 0.5) : c.has(1) ? c.number(1) : 0.5;
  if (!training || ratio == 0) {
    c.give(x);
    if (c.wants(1)) c.give(ones(x.shape(), DType::boolean));
    return;
  }
  const Tensor kept = bernoulli(1 - ratio, x.shape(), default_generator(), c.where);
  c.give(as(where(kept, x * (1 / (1 - ratio)), 0), x.dtype(), c));
  c.give(kept);
}

constexpr std::array kRows{
    OperatorRow{"BatchNormalization", &batch_norm_op},
    OperatorRow{"Dropout", &dropout_op, {}, 0b110, false},
    OperatorRow{"GroupNormalization", &group_norm_op},
    OperatorRow{"InstanceNormalization", &instance_norm_op},
    OperatorRow{"LRN", &local_response_op},
    OperatorRow{"LayerNormalization", &layer_norm_op},
    OperatorRow{"LpNormalization", &lp_normalization},
    OperatorRow{"MeanVarianceNormalization", &mean_variance_op},
    OperatorRow{"NegativeLogLikelihoodLoss", &nll_loss_op},
    OperatorRow{"RMSNormalization", &rms_norm_op},
    OperatorRow{"SoftmaxCrossEntropyLoss", &softmax_cross_entropy_op},
};

}  // namespace

Rows normalization_rows() { return kRows; }

}  // namespace fermata::onnx
