// Optimizers that remember more of gradients than a velocity, and Muon; see fermata/optimizers.h. SGD and Adam are in
// optimizers.cpp.
#include <fmt/format.h>

#include <cmath>

#include "fermata/composites.h"
#include "fermata/ops.h"
#include "fermata/optimizers.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/optimizer_parts.h"
#include "ir/error.h"

namespace fermata::optim {
namespace {

constexpr auto kRest = [](auto share) { return 1 - share; };

/// A gradient as the options ask for it.
template <class Options>
VjpTensor directed(const Options& o, const Tensor& value, const Tensor& gradient, bool decays = true) {
  const VjpTensor g = o.maximize ? -VjpTensor(gradient) : VjpTensor(gradient);
  if constexpr (requires { o.weight_decay; })
    if (decays && o.weight_decay) return g + VjpTensor(value) * of_option(value, o.weight_decay);
  return g;
}
/// A value with the weight decay that is apart from the gradient.
VjpTensor decayed(const Tensor& value, const Setting& rate, const Setting& decay) {
  if (!decay) return value;
  return VjpTensor(value) * of_options(
                                value, [](auto r, auto d) { return 1 - r * d; }, rate, decay);
}
/// Goes on with an average: memory * share + x * (1 - share), which is written.
VjpTensor averaged(Tensor& memory, const VjpTensor& x, const Setting& share, Location where) {
  const VjpTensor next = VjpTensor(memory) * of_option(memory, share) + x * of_options(memory, kRest, share);
  memory.assign({next.tensor(), where});
  return next;
}
void write(const Tensor& parameter, const VjpTensor& value, Location where) {
  Tensor(parameter).assign({value.tensor(), where});
}
/// A number of this step beside a tensor.
VjpTensor beside(const Tensor& value, const Tensor& number) { return vjp::cast(number, value.dtype()); }

}  // namespace

RMSprop::RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 1, 2, where), options(chosen) {
  for (std::size_t i = 0; i < this->parameters().size(); ++i) {
    if (options.centered) memory(1, i, where);
    if (options.momentum) memory(2, i, where);
  }
}
void RMSprop::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor g = directed(options, value, gradient);
  VjpTensor v = averaged(memory(0, i, where), vjp::square(g), options.alpha, where);
  if (options.centered) v = v - vjp::square(averaged(memory(1, i, where), g, options.alpha, where));
  VjpTensor step = g / (vjp::sqrt(v) + of_option(value, options.eps));
  if (options.momentum) {
    Tensor& velocity = memory(2, i, where);
    step = VjpTensor(velocity) * of_option(value, options.momentum) + step;
    velocity.assign({step.tensor(), where});
  }
  write(parameters()[i], VjpTensor(value) - step * of_option(value, options.learning_rate), where);
}

Adagrad::Adagrad(std::vector<Tensor> parameters, const AdagradOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 1, 0, where), options(chosen) {
  if (!options.initial_accumulator_value) return;
  const double start = options.initial_accumulator_value;
  for (Tensor& sum : memory_[0]) sum = full_like(sum, start, sum.dtype(), where);
}
void Adagrad::begin(Location where) {
  RememberingOptimizer::begin(where);
  step_size_ = (of_option(steps_, options.learning_rate) /
                ((VjpTensor(steps_) - 1) * of_option(steps_, options.learning_rate_decay) + 1))
                   .tensor();
}
void Adagrad::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor g = directed(options, value, gradient), sum = VjpTensor(memory(0, i, where)) + vjp::square(g);
  memory(0, i, where).assign({sum.tensor(), where});
  write(parameters()[i],
        VjpTensor(value) - g * beside(value, step_size_) / (vjp::sqrt(sum) + of_option(value, options.eps)), where);
}

Adadelta::Adadelta(std::vector<Tensor> parameters, const AdadeltaOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 2, 0, where), options(chosen) {}
void Adadelta::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor g = directed(options, value, gradient), eps = of_option(value, options.eps);
  const VjpTensor v = averaged(memory(0, i, where), vjp::square(g), options.rho, where);
  const VjpTensor step = vjp::sqrt(VjpTensor(memory(1, i, where)) + eps) / vjp::sqrt(v + eps) * g;
  averaged(memory(1, i, where), vjp::square(step), options.rho, where);
  write(parameters()[i], VjpTensor(value) - step * of_option(value, options.learning_rate), where);
}

Adamax::Adamax(std::vector<Tensor> parameters, const AdamaxOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 2, 0, where), options(chosen) {}
void Adamax::begin(Location where) {
  RememberingOptimizer::begin(where);
  step_size_ =
      (of_option(steps_, options.learning_rate) / (1 - vjp::pow(of_option(steps_, options.beta1), steps_))).tensor();
}
void Adamax::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor g = directed(options, value, gradient), m = averaged(memory(0, i, where), g, options.beta1, where);
  Tensor& largest = memory(1, i, where);
  const VjpTensor u =
      vjp::maximum(VjpTensor(largest) * of_option(value, options.beta2), vjp::abs(g) + of_option(value, options.eps));
  largest.assign({u.tensor(), where});
  write(parameters()[i], VjpTensor(value) - beside(value, step_size_) * m / u, where);
}

NAdam::NAdam(std::vector<Tensor> parameters, const NAdamOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 2, 0, where),
      options(chosen),
      product_(full({}, 1.0, DType::f64, device(steps_), where)) {}
std::vector<Tensor> NAdam::state() const {
  std::vector<Tensor> all = RememberingOptimizer::state();
  all.push_back(product_);
  return all;
}
void NAdam::begin(Location where) {
  RememberingOptimizer::begin(where);
  const VjpTensor t = steps_, decay = of_option(steps_, options.momentum_decay);
  const auto momentum = [&](const VjpTensor& step) {
    return of_option(steps_, options.beta1) * (1 - 0.5 * vjp::pow(0.96, step * decay));
  };
  const VjpTensor now = momentum(t), next = momentum(t + 1), product = VjpTensor(product_) * now;
  product_.assign({product.tensor(), where});
  const VjpTensor rate = of_option(steps_, options.learning_rate);
  of_gradient_ = (rate * (1 - now) / (1 - product)).tensor();
  of_moment_ = (rate * next / (1 - product * next)).tensor();
  correction_ = vjp::rsqrt(1 - vjp::pow(of_option(steps_, options.beta2), t)).tensor();
}
void NAdam::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const bool apart(options.decoupled_weight_decay);
  const VjpTensor x = apart ? decayed(value, options.learning_rate, options.weight_decay) : VjpTensor(value);
  const VjpTensor g = directed(options, value, gradient, !apart);
  const VjpTensor m = averaged(memory(0, i, where), g, options.beta1, where);
  const VjpTensor v = averaged(memory(1, i, where), vjp::square(g), options.beta2, where);
  const VjpTensor size = vjp::sqrt(v) * beside(value, correction_) + of_option(value, options.eps);
  write(parameters()[i], x - (g * beside(value, of_gradient_) + m * beside(value, of_moment_)) / size, where);
}

RAdam::RAdam(std::vector<Tensor> parameters, const RAdamOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 2, 0, where), options(chosen) {}
void RAdam::begin(Location where) {
  RememberingOptimizer::begin(where);
  const auto longest = [](auto beta2) { return 2 / (1 - beta2) - 1; };
  const auto scale = [=](auto beta2) {
    const auto most = longest(beta2);
    return most / ((most - 4) * (most - 2));
  };
  const VjpTensor t = steps_, power = vjp::pow(of_option(steps_, options.beta2), t);
  const VjpTensor length = of_options(steps_, longest, options.beta2) - 2 * t * power / (1 - power);
  // How well the second moment is known; up to a length of 5 it is left out.
  const VjpTensor adapts = length > 5, known = vjp::where(adapts, length, 6);
  const VjpTensor share = (known - 4) * (known - 2) / known * of_options(steps_, scale, options.beta2);
  const VjpTensor rectified = vjp::sqrt(share * (1 - power));
  step_size_ =
      (of_option(steps_, options.learning_rate) / (1 - vjp::pow(of_option(steps_, options.beta1), t))).tensor();
  rectified_ = vjp::where(adapts, rectified, 0).tensor();
  plain_ = vjp::where(adapts, vjp::cast(0 * t, DType::f64), 1).tensor();
}
void RAdam::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const bool apart(options.decoupled_weight_decay);
  const VjpTensor x = apart ? decayed(value, options.learning_rate, options.weight_decay) : VjpTensor(value);
  const VjpTensor g = directed(options, value, gradient, !apart);
  const VjpTensor m = averaged(memory(0, i, where), g, options.beta1, where);
  const VjpTensor v = averaged(memory(1, i, where), vjp::square(g), options.beta2, where);
  const VjpTensor share = beside(value, rectified_) / (vjp::sqrt(v) + of_option(value, options.eps));
  write(parameters()[i], x - m * beside(value, step_size_) * (share + beside(value, plain_)), where);
}

Lion::Lion(std::vector<Tensor> parameters, const LionOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 1, 0, where), options(chosen) {}
void Lion::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  Tensor& m = memory(0, i, where);
  const VjpTensor g = directed(options, value, gradient, false);
  const VjpTensor way = VjpTensor(m) * of_option(value, options.beta1) + g * of_options(value, kRest, options.beta1);
  averaged(m, g, options.beta2, where);
  write(parameters()[i],
        decayed(value, options.learning_rate, options.weight_decay) -
            vjp::sign(way) * of_option(value, options.learning_rate),
        where);
}

ASGD::ASGD(std::vector<Tensor> parameters, const AsgdOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 1, 0, where), options(chosen) {}
std::vector<Tensor> ASGD::averages() const {
  return steps_.item<double>() > 0 ? memory_[0] : parameters();  // there is one from the first step on
}
void ASGD::begin(Location where) {
  RememberingOptimizer::begin(where);
  const VjpTensor before = VjpTensor(steps_) - 1, rate = of_option(steps_, options.learning_rate);
  const VjpTensor decay = of_option(steps_, options.decay);
  const VjpTensor size = rate / vjp::pow(before * decay * rate + 1, of_option(steps_, options.power));
  step_size_ = size.tensor();
  kept_ = (1 - decay * size).tensor();
  share_ = vjp::reciprocal(vjp::maximum(before - of_option(steps_, options.start), 1)).tensor();
}
void ASGD::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor g = directed(options, value, gradient);
  const VjpTensor next = VjpTensor(value) * beside(value, kept_) - g * beside(value, step_size_);
  const VjpTensor average = memory(0, i, where);
  const VjpTensor share = beside(value, share_);
  // With a share of 1 the average is the value to the bit.
  memory(0, i, where).assign({vjp::where(share == 1, next, average + (next - average) * share).tensor(), where});
  write(parameters()[i], next, where);
}

Rprop::Rprop(std::vector<Tensor> parameters, const RpropOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 2, 0, where), options(chosen) {}
void Rprop::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor given = directed(options, value, gradient, false);
  const VjpTensor turn = given * memory(0, i, where), size = memory(1, i, where);  // 0 before the first step
  const VjpTensor one = vjp::full(1, {value.dtype(), {}}, value);
  const VjpTensor down = vjp::where(turn < 0, of_option(value, options.shrink), one);
  const VjpTensor factor = vjp::where(turn > 0, of_option(value, options.grow), down);
  const VjpTensor started = vjp::where(size == 0, of_option(value, options.learning_rate), size) * factor;
  const VjpTensor next = vjp::minimum(vjp::maximum(started, of_option(value, options.smallest_step)),
                                      of_option(value, options.largest_step));
  const VjpTensor g = vjp::where(turn < 0, 0, given);
  memory(0, i, where).assign({g.tensor(), where}), memory(1, i, where).assign({next.tensor(), where});
  write(parameters()[i], VjpTensor(value) - vjp::sign(g) * next, where);
}

Muon::Muon(std::vector<Tensor> parameters, const MuonOptions& chosen, Location where)
    : RememberingOptimizer(std::move(parameters), 1, 0, where), options(chosen) {
  for (const Tensor& p : this->parameters())
    if (p.rank() != 2)
      throw ShapeError(1083, format_error(1083, "ShapeError", "Muon: parameters must be matrices",
                                          {{"parameter", to_string(p.dtype(), p.shape()), ""}}, where));
}
void Muon::update(std::size_t i, const Tensor& value, const Tensor& gradient, Location where) {
  const VjpTensor g = directed(options, value, gradient, false);
  const VjpTensor m = averaged(memory(0, i, where), g, options.momentum, where);
  VjpTensor x = m;
  if (options.nesterov) x = g * of_options(value, kRest, options.momentum) + m * of_option(value, options.momentum);
  // Newton-Schulz: a polynomial of odd powers that brings all singular values near 1, on the shorter side.
  const bool is_tall = value.size(0) > value.size(1);
  if (is_tall) x = vjp::transpose(x);
  const VjpTensor length = vjp::sqrt(vjp::reduce(Op::sum, vjp::square(x), 3, true));
  x = x / vjp::maximum(length, of_option(value, options.eps));
  constexpr double kFirst = 3.4445, kThird = -4.775, kFifth = 2.0315;  // Jordan et al.
  for (std::int64_t k = 0; k < options.iterations; ++k) {
    const VjpTensor square = vjp::matmul(x, vjp::transpose(x));
    x = kFirst * x + vjp::matmul(kThird * square + kFifth * vjp::matmul(square, square), x);
  }
  if (is_tall) x = vjp::transpose(x);
  const auto rows = static_cast<double>(value.size(0)), columns = static_cast<double>(value.size(1));
  const double size =
      !options.match_rms_adamw ? std::sqrt(std::max(1.0, rows / columns)) : 0.2 * std::sqrt(std::max(rows, columns));
  write(
      parameters()[i],
      decayed(value, options.learning_rate, options.weight_decay) - x * size * of_option(value, options.learning_rate),
      where);
}

}  // namespace fermata::optim
