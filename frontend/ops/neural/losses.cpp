// Losses of elements, of pairs and of triplets; see fermata/losses.h. Those of classes are in class_losses.cpp.
#include "fermata/losses.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/loss_parts.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

VjpTensor above_zero(const VjpTensor& x) { return vjp::maximum(x, 0); }

/// |x| of order p along an axis. A length of 0 has the derivative 0, not NaN.
VjpTensor length(const VjpTensor& x, double p, std::int64_t axis, bool keepdims, Location where) {
  const auto total = [&](const VjpTensor& y) { return VjpTensor(sum(y.tensor(), axis, keepdims, where)); };
  if (std::isinf(p)) return max(vjp::abs(x).tensor(), axis, keepdims, where);
  if (p == 1) return total(vjp::abs(x));
  const VjpTensor powers = total(p == 2 ? vjp::square(x) : vjp::pow(vjp::abs(x), p));
  const VjpTensor zero = powers == 0, safe = vjp::where(zero, 1, powers);
  return vjp::where(zero, 0, p == 2 ? vjp::sqrt(safe) : vjp::pow(safe, 1 / p));
}

VjpTensor distance(const VjpTensor& x, const VjpTensor& y, double p, double eps, bool keepdims, Location where) {
  return length(x - y + eps, p, -1, keepdims, where);
}

void require_axes(std::string_view function, const Tensor& x, Location where) {
  if (x.rank() > 0) return;
  throw ShapeError(1015, format_error(1015, "ShapeError", fmt::format("{}: a vector must have one axis", function),
                                      describe(x), where));
}

VjpTensor cosine(std::string_view function, const VjpTensor& given_x, const VjpTensor& given_y, std::int64_t axis,
                 double eps, Location where) {
  const auto total = [&](const VjpTensor& v) { return VjpTensor(sum(v.tensor(), axis, false, where)); };
  // The lengths are those of what is multiplied: an axis of one element counts as often as it is stretched.
  const auto common = broadcast_shapes(given_x.shape(), given_y.shape());
  if (!common)
    throw ShapeError(1001, format_error(1001, "ShapeError", fmt::format("{}: shapes do not broadcast", function),
                                        describe(given_x.tensor(), given_y.tensor()), where));
  const VjpTensor x = broadcast_to(given_x.tensor(), *common, where),
                  y = broadcast_to(given_y.tensor(), *common, where);
  // Lengths by their squares, so that vectors of zeros have derivatives.
  const VjpTensor xx = vjp::maximum(total(vjp::square(x)), eps * eps),
                  yy = vjp::maximum(total(vjp::square(y)), eps * eps);
  return total(x * y) * vjp::rsqrt(xx) * vjp::rsqrt(yy);
}

/// A variance for each element of x, one for all, or one for each row (or a last axis of 1 in place of x's).
Tensor variance_of(const Tensor& var, const Tensor& x, Location where) {
  const Shape shape = x.shape();
  if (var.shape() == shape || var.element_count() == 1) return var;
  const Shape rows = shape.empty() ? shape : Shape(std::span<const std::int64_t>(shape).first(shape.rank() - 1u));
  if (!shape.empty() && var.shape() == rows) return expand_dims(var, -1, where);
  Shape last_of_one = shape;
  if (!shape.empty()) last_of_one[shape.rank() - 1u] = 1;
  if (var.shape() == last_of_one) return var;
  throw ShapeError(1022, format_error(1022, "ShapeError", "gaussian_nll_loss: variances must have the axes of x",
                                      {{"x", to_string(x.dtype(), shape), ""},
                                       {"var", to_string(var.dtype(), var.shape()),
                                        fmt::format("should be {} or {}", to_string(shape), to_string(rows))}},
                                      where));
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction reduction, Location where) {
  const LossScope in("mse_loss", {&x, &target}, where);
  return in.reduced(vjp::square(in(x)-in(target)), reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction, Location where) {
  const LossScope in("l1_loss", {&x, &target}, where);
  return in.reduced(vjp::abs(in(x)-in(target)), reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, LossReduction reduction, double beta, Location where) {
  if (!(beta >= 0)) fail_parameter("smooth_l1_loss", "beta is negative", where);
  if (beta == 0) return l1_loss(x, target, reduction, where);
  const LossScope in("smooth_l1_loss", {&x, &target}, where);
  const VjpTensor d = vjp::abs(in(x)-in(target));
  return in.reduced(vjp::where(d < beta, vjp::square(d) * (0.5 / beta), d - 0.5 * beta), reduction);
}

Tensor huber_loss(const Tensor& x, const Tensor& target, LossReduction reduction, double delta, Location where) {
  if (!(delta > 0)) fail_parameter("huber_loss", "delta is not positive", where);
  const LossScope in("huber_loss", {&x, &target}, where);
  const VjpTensor d = vjp::abs(in(x)-in(target));
  return in.reduced(vjp::where(d <= delta, vjp::square(d) * 0.5, (d - 0.5 * delta) * delta), reduction);
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction reduction,
                            Location where) {
  const LossScope in("binary_cross_entropy", {&x, &target}, where);
  const VjpTensor p = in(x), t = in(target);
  const auto bounded_log = [](const VjpTensor& v) { return vjp::maximum(vjp::log(v), -100); };
  VjpTensor loss = -(t * bounded_log(p) + (1 - t) * bounded_log(1 - p));
  if (weight.defined()) loss = loss * in(weight);
  return in.reduced(loss, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        LossReduction reduction, const Tensor& pos_weight, Location where) {
  const LossScope in("binary_cross_entropy_with_logits", {&x, &target}, where);
  const VjpTensor v = in(x), t = in(target);
  const VjpTensor part = vjp::softplus(-v);  // of t
  VjpTensor loss = (1 - t) * v + (pos_weight.defined() ? part * ((in(pos_weight)-1) * t + 1) : part);
  if (weight.defined()) loss = loss * in(weight);
  return in.reduced(loss, reduction);
}

Tensor kl_div(const Tensor& x, const Tensor& target, LossReduction reduction, bool log_target, Location where) {
  const LossScope in("kl_div", {&x, &target}, where);
  const VjpTensor v = in(x), t = in(target);
  if (log_target) return in.reduced(vjp::exp(t) * (t - v), reduction);
  const VjpTensor positive = t > 0;  // 0 log 0 is 0
  return in.reduced(vjp::where(positive, t * vjp::log(vjp::where(positive, t, 1)), t * 0.0) - t * v, reduction);
}

Tensor cosine_similarity(const Tensor& x, const Tensor& y, std::int64_t axis, double eps, Location where) {
  const LossScope in("cosine_similarity", {&x, &y}, where);
  return in.result(cosine("cosine_similarity", in(x), in(y), axis, eps, where));
}

Tensor pairwise_distance(const Tensor& x, const Tensor& y, double p, double eps, bool keepdims, Location where) {
  const LossScope in("pairwise_distance", {&x, &y}, where);
  require_axes("pairwise_distance", x, where);
  if (!(p > 0)) fail_parameter("pairwise_distance", "the order is not positive", where);
  return in.result(distance(in(x), in(y), p, eps, keepdims, where));
}

Tensor cosine_embedding_loss(const Tensor& x, const Tensor& y, const Tensor& sign, double margin,
                             LossReduction reduction, Location where) {
  const LossScope in("cosine_embedding_loss", {&x, &y}, where);
  require_axes("cosine_embedding_loss", x, where);
  const VjpTensor similarity = cosine("cosine_embedding_loss", in(x), in(y), -1, 1e-6, where);
  return in.reduced(vjp::where(in(sign) > 0, 1 - similarity, above_zero(similarity - margin)), reduction);
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& sign, double margin, LossReduction reduction,
                            Location where) {
  const LossScope in("hinge_embedding_loss", {&x}, where);
  const VjpTensor v = in(x);
  return in.reduced(vjp::where(in(sign) > 0, v, above_zero(margin - v)), reduction);
}

Tensor margin_ranking_loss(const Tensor& x, const Tensor& y, const Tensor& sign, double margin, LossReduction reduction,
                           Location where) {
  const LossScope in("margin_ranking_loss", {&x, &y}, where);
  return in.reduced(above_zero(-in(sign) * (in(x)-in(y)) + margin), reduction);
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& sign, LossReduction reduction, Location where) {
  const LossScope in("soft_margin_loss", {&x}, where);
  return in.reduced(vjp::softplus(-in(sign)*in(x)), reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, LossReduction reduction, Location where) {
  const LossScope in("triplet_margin_loss", {&anchor, &positive, &negative}, where);
  require_axes("triplet_margin_loss", anchor, where);
  if (!(p > 0)) fail_parameter("triplet_margin_loss", "the order is not positive", where);
  if (!(margin >= 0)) fail_parameter("triplet_margin_loss", "the margin is negative", where);
  const auto between = [&](const Tensor& x, const Tensor& y) { return distance(in(x), in(y), p, eps, false, where); };
  VjpTensor away = between(anchor, negative);
  if (swap) away = vjp::minimum(away, between(positive, negative));
  return in.reduced(above_zero(between(anchor, positive) - away + margin), reduction);
}

Tensor detail::triplet_loss(const Tensor& near, const Tensor& far, const Tensor& swapped, double margin,
                            LossReduction reduction, Location where) {
  constexpr std::string_view kName = "triplet_margin_with_distance_loss";
  const LossScope in(kName, {&near, &far}, where);
  if (!(margin >= 0)) fail_parameter(kName, "the margin is negative", where);
  VjpTensor away = in(far);
  if (swapped.defined()) away = vjp::minimum(away, in(swapped));
  return in.reduced(above_zero(in(near)-away + margin), reduction);
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var, bool full, double eps,
                         LossReduction reduction, Location where) {
  const LossScope in("gaussian_nll_loss", {&x, &target, &var}, where);
  const VjpTensor v = vjp::maximum(in(variance_of(var, x, where)), eps);
  const VjpTensor loss = 0.5 * (vjp::log(v) + vjp::square(in(x)-in(target)) / v);
  return in.reduced(full ? loss + 0.5 * std::log(2 * std::numbers::pi) : loss, reduction);
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, bool log_input, bool full, double eps,
                        LossReduction reduction, Location where) {
  const LossScope in("poisson_nll_loss", {&x, &target}, where);
  const VjpTensor v = in(x), t = in(target);
  VjpTensor loss = log_input ? vjp::exp(v) - t * v : v - t * vjp::log(v + eps);
  if (full) {
    const VjpTensor n = vjp::where(t > 1, t, 1);
    const VjpTensor stirling = n * vjp::log(n) - n + 0.5 * vjp::log(n * (2 * std::numbers::pi));
    loss = loss + vjp::where(t > 1, stirling, 0);
  }
  return in.reduced(loss, reduction);
}

}  // namespace fermata
