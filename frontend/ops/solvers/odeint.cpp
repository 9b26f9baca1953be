// See fermata/solvers.h: ordinary differential equations.
//
// Coefficients: J. R. Dormand and P. J. Prince, "A family of embedded Runge-Kutta formulae", J. Comp. Appl. Math. 6,
// 1980. The adjoint: Chen et al., "Neural ordinary differential equations", NeurIPS 2018.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fermata/creation.h"
#include "fermata/custom_function.h"
#include "fermata/derivatives.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/solvers.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;
using Rate = std::function<Tensor(double t, const Tensor& y)>;

constexpr int kStages = 7;
constexpr double kTimes[kStages] = {0, 1.0 / 5, 3.0 / 10, 4.0 / 5, 8.0 / 9, 1, 1};
constexpr double kWeights[kStages][kStages - 1] = {
    {},
    {1.0 / 5},
    {3.0 / 40, 9.0 / 40},
    {44.0 / 45, -56.0 / 15, 32.0 / 9},
    {19372.0 / 6561, -25360.0 / 2187, 64448.0 / 6561, -212.0 / 729},
    {9017.0 / 3168, -355.0 / 33, 46732.0 / 5247, 49.0 / 176, -5103.0 / 18656},
    {35.0 / 384, 0, 500.0 / 1113, 125.0 / 192, -2187.0 / 6784, 11.0 / 84}};
/// The result of order 5 less that of order 4.
constexpr double kError[kStages] = {71.0 / 57600,      0,          -71.0 / 16695, 71.0 / 1920,
                                    -17253.0 / 339200, 22.0 / 525, -1.0 / 40};

[[noreturn]] void fail(const std::string& what, const Tensor& y, Location where) {
  throw ValueError(1417, format_error(1417, "ValueError", "odeint: " + what,
                                      {{"start", to_string(y.dtype(), y.shape()), ""}}, where));
}

/// Goes from time to time in either direction, with the step that the last one suggested.
class Integrator {
 public:
  Integrator(Rate rate, const OdeOptions& options, Location where)
      : rate_(std::move(rate)), options_(options), where_(where) {}

  Tensor advance(Tensor y, double from, double to) {
    if (from == to || y.element_count() == 0) return y;
    const double direction = to > from ? 1 : -1;
    Tensor slope = rate_(from, y);
    if (step_ == 0) step_ = first_step(y, slope, std::fabs(to - from));
    double t = from;
    for (int taken = 0; direction * (to - t) > 0; ++taken) {
      if (taken == options_.steps)
        fail(fmt::format("more than {} steps from {} to {}", options_.steps, from, to), y, where_);
      const bool is_last = step_ >= std::fabs(to - t);
      const double h = is_last ? to - t : direction * step_;
      if (t + h == t || !(step_ > 0)) fail(fmt::format("the step becomes too small at {}", t), y, where_);
      const auto [next, next_slope, error] = one_step(t, h, y, slope);
      const double ratio = read(error);
      if (!(ratio <= 1)) {
        step_ = std::fabs(h) * (std::isfinite(ratio) ? std::max(0.2, 0.9 * std::pow(ratio, -0.2)) : 0.2);
        continue;
      }
      t = is_last ? to : t + h, y = next, slope = next_slope;
      const double grown = std::fabs(h) * std::min(10.0, 0.9 * std::pow(std::max(ratio, 1e-10), -0.2));
      step_ = is_last ? std::max(step_, grown) : grown;
    }
    return y;
  }

 private:
  struct Step {
    Tensor y, slope, error;
  };
  Step one_step(double t, double h, const Tensor& y, const Tensor& slope) const {
    std::vector<VjpTensor> slopes{slope};
    Tensor at = y;
    for (int stage = 1; stage < kStages; ++stage) {
      VjpTensor sum = slopes[0] * (h * kWeights[stage][0]);
      for (int k = 1; k < stage; ++k)
        if (kWeights[stage][k] != 0) sum = sum + slopes[static_cast<std::size_t>(k)] * (h * kWeights[stage][k]);
      at = (VjpTensor(y) + sum).tensor();
      slopes.push_back(rate_(t + h * kTimes[stage], at));
    }
    VjpTensor off = slopes[0] * (h * kError[0]);
    for (int k = 2; k < kStages; ++k) off = off + slopes[static_cast<std::size_t>(k)] * (h * kError[k]);
    const VjpTensor scale = maximum(abs(VjpTensor(y)), abs(VjpTensor(at))) * options_.relative + options_.absolute;
    return {at, slopes[kStages - 1].tensor(), size(off / scale)};
  }
  /// The root of the mean square.
  Tensor size(const VjpTensor& x) const { return sqrt({mean(square(x).tensor(), {}, false, where_), where_}); }
  double read(const Tensor& x) const { return astype(x, DType::f64, where_).item<double>(where_); }
  /// E. Hairer, S. P. Norsett and G. Wanner, "Solving ordinary differential equations I", II.4.
  double first_step(const Tensor& y, const Tensor& slope, double span) const {
    const VjpTensor scale = abs(VjpTensor(y)) * options_.relative + options_.absolute;
    const double of_y = read(size(VjpTensor(y) / scale)), of_slope = read(size(VjpTensor(slope) / scale));
    const double first = of_y < 1e-5 || !(of_slope > 1e-5) ? 1e-6 : 0.01 * of_y / of_slope;
    return std::min(span, std::isfinite(first) && first > 0 ? first : 1e-6);
  }

  Rate rate_;
  OdeOptions options_;
  Location where_;
  double step_ = 0;
};

/// Tensors one after another in a vector, and back.
struct Packing {
  explicit Packing(std::span<const Tensor> tensors) {
    for (const Tensor& t : tensors) shapes.push_back(t.shape()), dtypes.push_back(t.dtype());
  }
  Tensor pack(std::span<const Tensor> tensors, Location where) const {
    std::vector<Tensor> flat;
    for (const Tensor& t : tensors) flat.push_back(reshape(astype(t, dtypes[0], where), -1, where));
    return concat(flat, 0, where);
  }
  std::vector<Tensor> unpack(const Tensor& packed, Location where) const {
    std::vector<Tensor> tensors;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::int64_t count = element_count(shapes[i]);
      const Tensor part = slice(packed, 0, begin, begin + count, 1, where);
      tensors.push_back(astype(reshape(part, shapes[i], where), dtypes[i], where));
      begin += count;
    }
    return tensors;
  }
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
};

struct Problem {
  Dynamics f;
  std::vector<double> times;
  OdeOptions options;
  Location where;
};

Tensor solved(const Problem& p, const Tensor& start, std::span<const Tensor> parameters) {
  const vjp::LineGuard line(p.where);
  Integrator integrator([&](double t, const Tensor& y) { return p.f(t, y, parameters); }, p.options, p.where);
  std::vector<Tensor> results{start};
  for (std::size_t i = 1; i < p.times.size(); ++i)
    results.push_back(integrator.advance(results.back(), p.times[i - 1], p.times[i]));
  return stack(results, 0, p.where);
}

/// Back from time to time: y, the gradient a by y and those by the parameters, with da / dt = -a df / dy and so on. At
/// each time y is set to what it was, and a gains the gradient of the result there.
std::vector<Tensor> adjoint_gradients(const Problem& p, const Tensor& ys, const Tensor& gradient,
                                      std::span<const Tensor> parameters) {
  const vjp::LineGuard line(p.where);
  const auto at = [&](const Tensor& t, std::size_t i) { return select(t, 0, static_cast<std::int64_t>(i), p.where); };
  std::vector<Tensor> state{at(ys, 0), at(gradient, p.times.size() - 1)};
  for (const Tensor& parameter : parameters) state.push_back(zeros_like(parameter, {}, p.where));
  const Packing packing(state);
  Integrator integrator(
      [&](double t, const Tensor& packed) {
        const std::vector<Tensor> now = packing.unpack(packed, p.where);
        std::vector<Tensor> arguments{now[0]};
        arguments.insert(arguments.end(), parameters.begin(), parameters.end());
        const auto rate = [&](const std::vector<Tensor>& x) { return p.f(t, x[0], std::span(x).subspan(1)); };
        auto [slope, pull] = pullback(rate, arguments);
        std::vector<Tensor> rates{slope};
        for (const Tensor& g : pull(negative({now[1], p.where}))) rates.push_back(g);
        return packing.pack(rates, p.where).detach(p.where);
      },
      p.options, p.where);
  for (std::size_t i = p.times.size(); i-- > 1;) {
    state[0] = at(ys, i);
    state = packing.unpack(integrator.advance(packing.pack(state, p.where), p.times[i], p.times[i - 1]), p.where);
    state[1] = add({state[1], p.where}, at(gradient, i - 1));
  }
  return {state.begin() + 1, state.end()};
}

}  // namespace

Tensor odeint(const Dynamics& f, const Tensor& start, const std::vector<double>& times,
              const std::vector<Tensor>& parameters, const OdeOptions& options, Location where) {
  require_defined("odeint", start, where);
  for (const Tensor& parameter : parameters) require_defined("odeint", parameter, where);
  if (start.dtype() != DType::f32 && start.dtype() != DType::f64)
    throw DTypeError(1101, format_error(1101, "DTypeError", "odeint: does not take " + std::string(name(start.dtype())),
                                        describe(start), where, "cast it to f32 or f64 first"));
  if (times.empty()) fail("no times", start, where);
  const bool rising = times.front() <= times.back();
  for (std::size_t i = 1; i < times.size(); ++i)
    if (rising ? !(times[i - 1] <= times[i]) : !(times[i - 1] >= times[i]))
      fail(fmt::format("times {} and {} are not in order", times[i - 1], times[i]), start, where);
  const Problem problem{f, times, options, where};
  std::vector<Tensor> arguments{start};
  arguments.insert(arguments.end(), parameters.begin(), parameters.end());
  FunctionCall call(
      "odeint", arguments,
      [problem](FunctionContext& context, std::span<const Tensor> g) {
        const std::vector<Tensor> saved = context.saved();
        return no_grad([&] { return adjoint_gradients(problem, saved[0], g[0], std::span(saved).subspan(1)); });
      },
      where);
  std::vector<Tensor> detached;
  for (const Tensor& parameter : parameters) detached.push_back(parameter.detach(where));
  const Tensor ys = no_grad([&] { return solved(problem, start.detach(where), detached); });
  std::vector<Tensor> kept{ys};
  kept.insert(kept.end(), parameters.begin(), parameters.end());
  call.context().save_for_backward(kept);
  return call.finish({ys})[0];
}

}  // namespace fermata
