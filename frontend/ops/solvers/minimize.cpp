// See fermata/solvers.h: minimization by L-BFGS.
#include <cmath>
#include <deque>

#include "fermata/autograd.h"
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

/// f at a place, its gradient as a vector, and what of it is read.
struct Place {
  Tensor x, gradient;
  double value, largest;
};

class Objective {
 public:
  Objective(const TensorToTensor& f, const Shape& shape, Location where) : f_(f), shape_(shape), where_(where) {}
  Place at(const Tensor& x) {
    ++evaluations;
    const auto both = value_and_grad<0>([&](const Tensor& v) {
      const Tensor y = f_(reshape(v, shape_, where_));
      if (y.element_count() != 1)
        throw ShapeError(1021, format_error(1021, "ShapeError", "minimize: f must return one element",
                                            {{"f(x)", to_string(y.dtype(), y.shape()), ""}}, where_));
      return reshape(y, Shape{}, where_);
    });
    const auto [y, g] = both(x);
    const Tensor gradient = g.detach(where_);
    const double largest = x.element_count() == 0 ? 0 : read(max(abs({gradient, where_}), {}, false, where_));
    return {x, gradient, read(y), largest};
  }
  double read(const Tensor& x) const { return astype(x, DType::f64, where_).item<double>(where_); }
  double dot(const Tensor& a, const Tensor& b) const { return read(sum(multiply({a, where_}, b), {}, false, where_)); }

  int evaluations = 0;

 private:
  const TensorToTensor& f_;
  Shape shape_;
  Location where_;
};

struct Difference {
  Tensor step, gradient;
  double inverse;  // of their product
};

/// The gradient times the approximate inverse of the Hessian: two loops over the differences.
Tensor direction_of(const Objective& f, const Tensor& gradient, const std::deque<Difference>& history) {
  VjpTensor q = gradient;
  std::vector<double> weights;
  for (std::size_t i = history.size(); i-- > 0;) {
    weights.push_back(history[i].inverse * f.dot(history[i].step, q.tensor()));
    q = q - VjpTensor(history[i].gradient) * weights.back();
  }
  if (!history.empty()) {
    const Difference& last = history.back();
    q = q * (1 / (last.inverse * f.dot(last.gradient, last.gradient)));
  }
  for (const Difference& d : history) {
    const double share = d.inverse * f.dot(d.gradient, q.tensor());
    q = q + VjpTensor(d.step) * (weights.back() - share);
    weights.pop_back();
  }
  return (-q).tensor();
}

}  // namespace

Minimum minimize(const TensorToTensor& f, const Tensor& start, const MinimizeOptions& options, Location where) {
  require_defined("minimize", start, where);
  if (start.dtype() != DType::f32 && start.dtype() != DType::f64)
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", "minimize: does not take " + std::string(name(start.dtype())),
                                  describe(start), where, "cast it to f32 or f64 first"));
  const vjp::LineGuard line(where);
  Objective objective(f, start.shape(), where);
  Place here = objective.at(reshape(start.detach(where), -1, where));
  std::deque<Difference> history;
  int k = 0;
  for (; k < options.iterations && here.largest > options.tolerance; ++k) {
    Tensor direction = direction_of(objective, here.gradient, history);
    double slope = objective.dot(direction, here.gradient);
    if (!(slope < 0)) {  // the differences are of no use any more
      history.clear();
      direction = negative({here.gradient, where});
      slope = objective.dot(direction, here.gradient);
    }
    // Bisection for the weak Wolfe conditions (A. S. Lewis and M. L. Overton, Math. Program. 141, 2013).
    constexpr double kDecrease = 1e-4, kCurvature = 0.9;
    double low = 0, high = HUGE_VAL, share = history.empty() ? std::min(1.0, 1 / here.largest) : 1;
    Place next = here;
    bool found = false;
    for (int tries = 0; tries < 40; ++tries) {
      next = objective.at((VjpTensor(here.x) + VjpTensor(direction) * share).tensor());
      if (!(next.value <= here.value + kDecrease * share * slope))
        high = share;
      else if (found = true; objective.dot(next.gradient, direction) < kCurvature * slope)
        low = share;
      else
        break;
      share = high < HUGE_VAL ? (low + high) / 2 : 2 * low;
    }
    if (!found || !(next.value <= here.value)) break;
    const Tensor step = (VjpTensor(next.x) - here.x).tensor(),
                 change = (VjpTensor(next.gradient) - here.gradient).tensor();
    const double product = objective.dot(step, change);
    if (product > 0) history.push_back({step, change, 1 / product});
    if (history.size() > static_cast<std::size_t>(std::max(options.history, 1))) history.pop_front();
    here = next;
  }
  return {reshape(here.x, start.shape(), where), here.value, here.largest, k, objective.evaluations,
          here.largest <= options.tolerance};
}

}  // namespace fermata
