// Losses of labels by margins; see fermata/losses.h.
#include <fmt/format.h>

#include <limits>

#include "fermata/losses.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/loss_parts.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

void check_labels(std::string_view function, const Tensor& x, const Tensor& labels, bool one_each, Location where) {
  require_defined(function, x, where), require_defined(function, labels, where);
  const bool has_classes = x.rank() == 1 || x.rank() == 2;
  const Shape wanted = !one_each ? x.shape() : x.rank() == 1 ? Shape{} : has_classes ? Shape{x.size(0)} : Shape{};
  const std::vector<ErrorOperand> lines{{"x", to_string(x.dtype(), x.shape()), ""},
                                        {"labels", to_string(labels.dtype(), labels.shape()), ""}};
  if (!has_classes || labels.shape() != wanted || x.size(-1) == 0)
    throw ShapeError(1022, format_error(1022, "ShapeError",
                                        fmt::format("{}: expected x [N, C] or [C], labels {}", function,
                                                    one_each ? "[N] or []" : "as many as x"),
                                        lines, where));
  if (!is_integer(labels.dtype()))
    throw DTypeError(
        1107, format_error(1107, "DTypeError", fmt::format("{}: labels must be integers", function), lines, where));
}

VjpTensor total(const VjpTensor& x, std::int64_t axis, bool keepdims, Location where) {
  return sum(x.tensor(), axis, keepdims, where);
}

}  // namespace

Tensor multi_margin_loss(const Tensor& x, const Tensor& labels, int p, double margin, const Tensor& weight,
                         LossReduction reduction, Location where) {
  check_labels("multi_margin_loss", x, labels, true, where);
  if (p != 1 && p != 2) fail_parameter("multi_margin_loss", "p is neither 1 nor 2", where);
  const std::int64_t classes = x.size(-1);
  if (weight.defined() && weight.shape() != Shape{classes})
    throw ShapeError(
        1022,
        format_error(1022, "ShapeError", "multi_margin_loss: weight must have one number per class",
                     {{"weight", to_string(weight.dtype(), weight.shape()), fmt::format("should be [{}]", classes)}},
                     where));
  const LossScope in("multi_margin_loss", {&x}, where);
  const VjpTensor score = in(x), label = expand_dims(astype(labels, DType::i64, where), -1, where);
  const VjpTensor own = vjp::iota({classes}, 0, score) == label;
  VjpTensor excess = vjp::maximum(margin - total(vjp::where(own, score, 0), -1, true, where) + score, 0);
  if (p == 2) excess = vjp::square(excess);
  if (weight.defined()) excess = excess * total(vjp::where(own, in(weight), 0), -1, true, where);
  const VjpTensor wrong = vjp::logical_or(label < 0, label >= classes);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const VjpTensor counted = vjp::where(wrong, kNaN, vjp::where(own, 0, excess));
  return in.reduced(total(counted, -1, false, where) * (1 / static_cast<double>(classes)), reduction);
}

Tensor multilabel_margin_loss(const Tensor& x, const Tensor& labels, LossReduction reduction, Location where) {
  check_labels("multilabel_margin_loss", x, labels, false, where);
  const LossScope in("multilabel_margin_loss", {&x}, where);
  const std::int64_t classes = x.size(-1);
  const VjpTensor score = in(x), label = astype(labels, DType::i64, where);
  // Labels count up to the first negative one.
  const VjpTensor ended = cumulative_sum((label < 0).tensor(), -1, false, where);
  const VjpTensor counts = vjp::equal(ended, 0);
  // [.., labels, classes]
  const VjpTensor all = vjp::iota({classes}, 0, score);
  const VjpTensor named = vjp::logical_and(expand_dims(counts.tensor(), -1, where),
                                           all == VjpTensor(expand_dims(label.tensor(), -1, where)));
  const VjpTensor is_target = any(named.tensor(), -2, true, where);
  const VjpTensor wide = expand_dims(score.tensor(), -2, where);
  const VjpTensor of_label = total(vjp::where(named, wide, 0), -1, true, where);
  const VjpTensor pair = vjp::logical_and(expand_dims(counts.tensor(), -1, where), vjp::logical_not(is_target));
  const VjpTensor excess = vjp::where(pair, vjp::maximum(1 - of_label + wide, 0), 0);
  const VjpTensor summed = total(total(excess, -1, false, where), -1, false, where);
  return in.reduced(summed * (1 / static_cast<double>(classes)), reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction reduction,
                                   Location where) {
  const LossScope in("multilabel_soft_margin_loss", {&x, &target}, where);
  if (x.rank() == 0) fail_parameter("multilabel_soft_margin_loss", "x has no class axis", where);
  const VjpTensor v = in(x), t = in(target);
  VjpTensor loss = -(t * vjp::log_sigmoid(v) + (1 - t) * vjp::log_sigmoid(-v));
  if (weight.defined()) loss = loss * in(weight);
  return in.reduced(VjpTensor(mean(loss.tensor(), -1, false, where)), reduction);
}

}  // namespace fermata
