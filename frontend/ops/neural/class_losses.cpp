// Losses of classes: nll_loss and cross_entropy; see fermata/losses.h.
//
// The log-likelihood of a label is picked by comparing labels with the numbers of all classes and adding up, not by
// position: that fuses with the log_softmax before it.
#include <fmt/format.h>

#include <limits>

#include "fermata/composites.h"
#include "fermata/device.h"
#include "fermata/losses.h"
#include "fermata/manipulation.h"
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

std::vector<ErrorOperand> lines_of(const Tensor& x, const Tensor& target, std::string note = "") {
  return {{"x", to_string(x.dtype(), x.shape()), ""},
          {"target", to_string(target.dtype(), target.shape()), std::move(note)}};
}

unsigned class_axis(std::string_view function, const Tensor& x, const ClassOptions& options, Location where) {
  return normalize_axis(function, x.rank() == 1 && options.axis == 1 ? 0 : options.axis, type_of(x), where);
}

void check_labels(std::string_view function, const Tensor& x, const Tensor& labels, std::int64_t axis, Location where) {
  Shape rows;
  for (unsigned i = 0; i < x.rank(); ++i)
    if (std::int64_t{i} != axis) rows.push_back(x.shape()[i]);
  if (labels.shape() != rows)
    throw ShapeError(1022,
                     format_error(1022, "ShapeError",
                                  fmt::format("{}: labels must have the axes of x without axis {}", function, axis),
                                  lines_of(x, labels, "should be " + to_string(rows)), where));
  if (!is_integer(labels.dtype()))
    throw DTypeError(1107, format_error(1107, "DTypeError", fmt::format("{}: labels must be integers", function),
                                        lines_of(x, labels), where));
}

bool is_plain(const ClassOptions& options) {
  return !options.weight.defined() && options.ignore_index == ClassOptions{}.ignore_index &&
         options.reduction == LossReduction::mean && options.label_smoothing == 0;
}

/// A loss of classes with its operands checked.
class ClassLoss {
 public:
  /// x has log-likelihoods, or logits where they still have to be normalized.
  ClassLoss(std::string_view function, const Tensor& x, const ClassOptions& options, bool logits, Location where)
      : in_(function, {&x}, where),
        function_(function),
        options_(options),
        where_(where),
        axis_(class_axis(function, x, options, where)),
        classes_(x.size(axis_)),
        likelihood_(logits ? log_softmax(in_(x).tensor(), axis_, where) : in_(x).tensor()) {
    if (options.label_smoothing < 0 || options.label_smoothing > 1)
      fail_parameter(function, "label_smoothing is not between 0 and 1", where);
    if (!options.weight.defined() || options.weight.shape() == Shape{classes_}) return;
    throw ShapeError(
        1022, format_error(1022, "ShapeError", fmt::format("{}: weight must have one number per class", function),
                           {{"weight", to_string(options.weight.dtype(), options.weight.shape()),
                             fmt::format("should be [{}]", classes_)}},
                           where));
  }

  Tensor of_labels(const Tensor& x, const Tensor& labels) const {
    check_labels(function_, x, labels, axis_, where_);
    // As i64: a number takes the dtype of what it is compared with, and ignore_index has to keep its value.
    const VjpTensor label = expand_dims(astype(labels, DType::i64, where_), axis_, where_), all = classes();
    const VjpTensor chosen = all == label, kept = vjp::not_equal(label, options_.ignore_index);
    const VjpTensor weights = options_.weight.defined() ? open(options_.weight) : VjpTensor(1.0);
    VjpTensor own = weight_of(chosen, weights, kept);
    VjpTensor loss = -total(vjp::where(chosen, likelihood_, 0)) * own;
    if (options_.label_smoothing > 0) {
      const double eps = options_.label_smoothing;
      const VjpTensor spread = -total(options_.weight.defined() ? likelihood_ * weights : likelihood_);
      loss = loss * (1 - eps) + vjp::where(kept, spread, 0) * (eps / static_cast<double>(classes_));
    }
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    const VjpTensor wrong = vjp::logical_and(kept, vjp::logical_or(label < 0, label >= classes_));
    loss = without_axis(vjp::where(wrong, kNaN, loss));
    if (options_.reduction != LossReduction::mean) return in_.reduced(loss, options_.reduction);
    return in_.result(VjpTensor(sum(loss.tensor(), {}, false, where_)) /
                      sum(without_axis(own).tensor(), {}, false, where_));
  }

  Tensor of_probabilities(const Tensor& target) const {
    const double eps = options_.label_smoothing;
    VjpTensor t = in_(target);
    if (eps > 0) t = t * (1 - eps) + eps / static_cast<double>(classes_);
    VjpTensor terms = likelihood_ * t;
    if (options_.weight.defined()) terms = terms * open(options_.weight);
    return in_.reduced(without_axis(-total(terms)), options_.reduction);
  }

 private:
  /// The numbers of the classes, and anything of each, along their axis.
  VjpTensor classes() const {
    Shape shape{classes_};
    for (unsigned i = axis_ + 1; i < rank(); ++i) shape.push_back(1);
    return vjp::iota(shape, 0, likelihood_);
  }
  VjpTensor open(const Tensor& of_classes) const {
    Shape shape{classes_};
    for (unsigned i = axis_ + 1; i < rank(); ++i) shape.push_back(1);
    return vjp::reshape(in_(of_classes), shape);
  }
  VjpTensor weight_of(const VjpTensor& chosen, const VjpTensor& weights, const VjpTensor& kept) const {
    if (options_.weight.defined()) return vjp::where(kept, total(vjp::where(chosen, weights, 0)), 0);
    return vjp::cast(kept, likelihood_.dtype());
  }
  VjpTensor total(const VjpTensor& x) const { return sum(x.tensor(), static_cast<std::int64_t>(axis_), true, where_); }
  VjpTensor without_axis(const VjpTensor& x) const {
    return squeeze(x.tensor(), static_cast<std::int64_t>(axis_), where_);
  }
  unsigned rank() const { return likelihood_.shape().rank(); }

  LossScope in_;
  std::string_view function_;
  const ClassOptions& options_;
  Location where_;
  unsigned axis_;
  std::int64_t classes_;
  VjpTensor likelihood_;
};

}  // namespace

Tensor nll_loss(const Tensor& x, const Tensor& labels, const ClassOptions& options, Location where) {
  require_defined("nll_loss", x, where), require_defined("nll_loss", labels, where);
  return ClassLoss("nll_loss", x, options, false, where).of_labels(x, labels);
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, const ClassOptions& options, Location where) {
  require_defined("cross_entropy", x, where), require_defined("cross_entropy", target, where);
  const bool probabilities = target.shape() == x.shape() && is_floating(target.dtype());
  if (!probabilities && is_floating(x.dtype()) && is_plain(options)) {
    // The common case is an op, which autocast and explain() know by its name: classes last.
    const std::int64_t axis = class_axis("cross_entropy", x, options, where);
    check_labels("cross_entropy", x, target, axis, where);
    const Tensor operands[] = {moveaxis(x, axis, -1, where), target};
    return general_call(Op::cross_entropy, operands, {}, where);
  }
  const ClassLoss loss("cross_entropy", x, options, true, where);
  return probabilities ? loss.of_probabilities(target) : loss.of_labels(x, target);
}

}  // namespace fermata
