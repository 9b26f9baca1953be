// See fermata/optimizers.h.
#include "fermata/optimizers.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/sync.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "frontend/ops/neural/optimizer_parts.h"
#include "ir/error.h"

namespace fermata::optim {
namespace {

using vjp::VjpTensor;

[[noreturn]] void fail_gradient(std::string_view what, std::string_view label, const Tensor& other,
                                const Tensor& gradient, Location where) {
  throw ShapeError(1080, format_error(1080, "ShapeError", what,
                                      {{label, to_string(other.dtype(), other.shape()), ""},
                                       {"gradient", to_string(gradient.dtype(), gradient.shape()), ""}},
                                      where));
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, Location where) : parameters_(std::move(parameters)) {
  for (const Tensor& p : parameters_) {
    require_defined("optimizer", p, where);
    if (!is_floating(p.dtype()))
      throw DTypeError(1101,
                       format_error(1101, "DTypeError", fmt::format("optimizer: does not take {}", name(p.dtype())),
                                    {{"parameter", to_string(p.dtype(), p.shape()), ""}}, where));
  }
}

void Optimizer::step(std::span<const Tensor> gradients, Location where) {
  if (gradients.size() != parameters_.size())
    throw ValueError(
        1378, format_error(1378, "ValueError",
                           fmt::format("step: {} gradients for {} parameters", gradients.size(), parameters_.size()),
                           {}, where));
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined() && gradients[i].shape() != parameters_[i].shape())
      fail_gradient("step: the shape of a gradient does not match its parameter", "parameter", parameters_[i],
                    gradients[i], where);
  const NoGradGuard no_history;
  const vjp::LineGuard line(where);
  begin(where);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const DType wide = compute_dtype(parameters_[i].dtype());
    update(i, astype(parameters_[i].detach(), wide, where), astype(gradients[i].detach(), wide, where), where);
  }
  if (in_capture_scope()) return;  // the plan of the function being compiled has it all
  std::vector<Tensor> written = state();
  written.insert(written.end(), parameters_.begin(), parameters_.end());
  sync(written, where);
}

void Optimizer::step(Location where) {
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters_) gradients.push_back(p.grad());
  step(gradients, where);
}

void Optimizer::zero_grad() const {
  for (const Tensor& p : parameters_) p.zero_grad();
}

RememberingOptimizer::RememberingOptimizer(std::vector<Tensor> parameters, std::size_t slots, std::size_t late,
                                           Location where)
    : Optimizer(std::move(parameters), where), memory_(slots + late) {
  for (std::size_t slot = 0; slot < memory_.size(); ++slot)
    for (const Tensor& p : this->parameters()) memory_[slot].push_back(slot < slots ? remembered(p, where) : Tensor());
  const Device on = this->parameters().empty() ? cpu() : device(this->parameters()[0]);
  steps_ = zeros({}, DType::f64, on, where);
}

std::vector<Tensor> RememberingOptimizer::state() const {
  std::vector<Tensor> all{steps_};
  for (std::size_t i = 0; i < parameters().size(); ++i)
    for (const std::vector<Tensor>& slot : memory_)
      if (slot[i].defined()) all.push_back(slot[i]);
  return all;
}

void RememberingOptimizer::begin(Location where) { steps_.assign({(VjpTensor(steps_) + 1).tensor(), where}); }

Tensor& RememberingOptimizer::memory(std::size_t slot, std::size_t i, Location where) {
  Tensor& t = memory_[slot][i];
  if (!t.defined()) t = outside([&] { return remembered(parameters()[i], where); }, where);
  return t;
}

SGD::SGD(std::vector<Tensor> parameters, const SgdOptions& chosen, Location where)
    : Optimizer(std::move(parameters), where),
      options(chosen),
      velocity_(this->parameters().size()),
      started_(velocity_.size()),
      has_moved_(velocity_.size()) {
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0))
    fail_parameter("SGD", "nesterov requires momentum and no dampening", where);
  if (!options.momentum) return;
  for (std::size_t i = 0; i < velocity_.size(); ++i) {
    velocity_[i] = remembered(this->parameters()[i], where);
    if (options.dampening) started_[i] = zeros({}, DType::f64, device(velocity_[i]), where);
  }
}

std::vector<Tensor> SGD::state() const {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < velocity_.size(); ++i)
    for (const Tensor& t : {velocity_[i], started_[i]})
      if (t.defined()) all.push_back(t);
  return all;
}

void SGD::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  VjpTensor g = options.maximize ? -VjpTensor(gradient) : VjpTensor(gradient);
  if (options.weight_decay) g = g + VjpTensor(value) * of_option(value, options.weight_decay);
  if (options.momentum) {
    const bool is_first = !has_moved_[i];
    has_moved_[i] = true;
    if (!velocity_[i].defined()) velocity_[i] = outside([&] { return remembered(parameters()[i], where); }, where);
    const VjpTensor momentum = of_option(value, options.momentum);
    const VjpTensor added = !options.dampening ? g : g * vjp::cast(undamped_share(i, is_first, where), g.dtype());
    const VjpTensor v = VjpTensor(velocity_[i]) * momentum + added;
    velocity_[i].assign({v.tensor(), where});
    g = options.nesterov ? g + v * momentum : v;
  }
  parameters()[i].assign({(VjpTensor(value) - g * of_option(value, options.learning_rate)).tensor(), where});
}

Tensor SGD::undamped_share(std::size_t i, bool is_first, Location where) {
  if (!started_[i].defined())
    started_[i] =
        outside([&] { return full({}, is_first ? 0.0 : 1.0, DType::f64, device(velocity_[i]), where); }, where);
  const Tensor share = (1 - VjpTensor(started_[i]) * of_option(started_[i], options.dampening)).tensor();
  started_[i].assign({1, where});
  return share;
}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& chosen, Location where)
    : Adam(std::move(parameters), chosen, false, where) {}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& chosen, bool decoupled, Location where)
    : Optimizer(std::move(parameters), where), options(chosen), decoupled_(decoupled) {
  for (const Tensor& p : this->parameters()) {
    first_.push_back(remembered(p, where)), second_.push_back(remembered(p, where));
    largest_.push_back(!options.amsgrad ? Tensor() : remembered(p, where));
  }
  const Device on = first_.empty() ? cpu() : device(first_[0]);
  steps_ = zeros({}, DType::f64, on, where);
}

std::vector<Tensor> Adam::state() const {
  std::vector<Tensor> all{steps_};
  for (std::size_t i = 0; i < first_.size(); ++i) {
    all.push_back(first_[i]), all.push_back(second_[i]);
    if (largest_[i].defined()) all.push_back(largest_[i]);
  }
  return all;
}

void Adam::begin(Location where) {
  const VjpTensor count = VjpTensor(steps_) + 1;
  steps_.assign({count.tensor(), where});
  // In f64: 1 - beta ^ steps is small for many steps.
  step_size_ =
      (of_option(steps_, options.learning_rate) / (1 - vjp::pow(of_option(steps_, options.beta1), count))).tensor();
  second_correction_ = vjp::rsqrt(1 - vjp::pow(of_option(steps_, options.beta2), count)).tensor();
}

void Adam::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const DType t = value.dtype();
  VjpTensor x = value, g = options.maximize ? -VjpTensor(gradient) : VjpTensor(gradient);
  if (options.weight_decay) {
    if (!decoupled_)
      g = g + x * of_option(value, options.weight_decay);
    else
      x = x * of_options(
                  value, [](auto rate, auto decay) { return 1 - rate * decay; }, options.learning_rate,
                  options.weight_decay);
  }
  const auto rest = [](auto beta) { return 1 - beta; };
  const VjpTensor m =
      VjpTensor(first_[i]) * of_option(value, options.beta1) + g * of_options(value, rest, options.beta1);
  VjpTensor v =
      VjpTensor(second_[i]) * of_option(value, options.beta2) + vjp::square(g) * of_options(value, rest, options.beta2);
  first_[i].assign({m.tensor(), where}), second_[i].assign({v.tensor(), where});
  if (options.amsgrad) {
    Tensor& largest = largest_[i];
    if (!largest.defined()) largest = outside([&] { return remembered(parameters()[i], where); }, where);
    v = vjp::maximum(largest, v);
    largest.assign({v.tensor(), where});
  }
  const VjpTensor size = vjp::cast(step_size_, t), correction = vjp::cast(second_correction_, t);
  parameters()[i].assign(
      {(x - size * m / (vjp::sqrt(v) * correction + of_option(value, options.eps))).tensor(), where});
}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamOptions& chosen, Location where)
    : Adam(std::move(parameters), chosen, true, where) {}

void GradientAccumulator::add(std::span<const Tensor> gradients, Location where) {
  if (count_ == 0) sums_.assign(gradients.size(), Tensor()), dtypes_.assign(gradients.size(), DType::f32);
  if (gradients.size() != sums_.size())
    throw ValueError(
        1378, format_error(1378, "ValueError",
                           fmt::format("add: {} gradients, but {} before", gradients.size(), sums_.size()), {}, where));
  for (std::size_t i = 0; i < sums_.size(); ++i)
    if (sums_[i].defined() && gradients[i].defined() && gradients[i].shape() != sums_[i].shape())
      fail_gradient("add: the shape of a gradient does not match the previous ones", "before", sums_[i], gradients[i],
                    where);
  const NoGradGuard no_history;
  const vjp::LineGuard line(where);
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    dtypes_[i] = gradients[i].dtype();
    const Tensor wide = astype(gradients[i].detach(), compute_dtype(dtypes_[i]), where);
    sums_[i] = sums_[i].defined() ? (VjpTensor(sums_[i]) + VjpTensor(wide)).tensor() : wide;
  }
  ++count_;
  if (in_capture_scope()) return;
  std::vector<Tensor> present;
  for (const Tensor& total : sums_)
    if (total.defined()) present.push_back(total);
  sync(present, where);  // or the work of all batches would be kept
}

std::vector<Tensor> GradientAccumulator::take(Location where) {
  const NoGradGuard no_history;
  const vjp::LineGuard line(where);
  std::vector<Tensor> means(sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i)
    if (sums_[i].defined())
      means[i] = vjp::cast(VjpTensor(sums_[i]) / static_cast<double>(count_), dtypes_[i]).tensor();
  sums_.clear(), dtypes_.clear();
  count_ = 0;
  return means;
}

Tensor clip_grad_norm(std::vector<Tensor>& gradients, double max_norm, double norm_type, Location where) {
  if (!(norm_type > 0)) fail_parameter("clip_grad_norm", "the order is not positive", where);
  const NoGradGuard no_history;
  const vjp::LineGuard line(where);
  VjpTensor total;
  bool any = false;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const VjpTensor g = vjp::abs(astype(gradient.detach(), compute_dtype(gradient.dtype()), where));
    const VjpTensor own = std::isinf(norm_type) ? VjpTensor(max(g.tensor(), {}, false, where))
                          : norm_type == 2      ? VjpTensor(sum(vjp::square(g).tensor(), {}, false, where))
                                                : VjpTensor(sum(vjp::pow(g, norm_type).tensor(), {}, false, where));
    total = !any ? own : std::isinf(norm_type) ? vjp::maximum(total, own) : total + own;
    any = true;
  }
  if (!any) return zeros({}, DType::f32, where);
  const VjpTensor norm = std::isinf(norm_type) ? total
                         : norm_type == 2      ? vjp::sqrt(total)
                                               : vjp::pow(total, 1 / norm_type);
  const VjpTensor factor = vjp::minimum(max_norm / (norm + 1e-6), 1);
  for (Tensor& gradient : gradients)
    if (gradient.defined()) gradient = (VjpTensor(gradient.detach()) * vjp::cast(factor, gradient.dtype())).tensor();
  return norm.tensor();
}

void clip_grad_value(std::vector<Tensor>& gradients, double limit, Location where) {
  const NoGradGuard no_history;
  const vjp::LineGuard line(where);
  for (Tensor& gradient : gradients)
    if (gradient.defined()) gradient = vjp::minimum(vjp::maximum(gradient.detach(), -limit), limit).tensor();
}

}  // namespace fermata::optim
