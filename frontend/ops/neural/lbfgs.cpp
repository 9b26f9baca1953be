// LBFGS; see fermata/optimizers.h.
//
// The two-loop recursion works on coefficients: a direction is a combination of the remembered changes and of the
// gradient, and all that the recursion asks is products between those. So a step takes three products with the whole
// history, whatever its length, and compiles once. Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce", NeurIPS
// 2014.
#include <algorithm>
#include <array>
#include <cmath>

#include "fermata/autograd.h"
#include "fermata/ops.h"
#include "fermata/optimizers.h"
#include "fermata/reductions.h"
#include "fermata/sync.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "frontend/ops/neural/optimizer_parts.h"
#include "ir/error.h"

namespace fermata::optim {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

/// The loss and its gradient, all parameters as one vector, at some point.
struct LBFGS::Evaluation {
  double loss = 0;
  Tensor gradient;
};

/// One step: where it began, and the numbers of the state while it runs.
struct LBFGS::Search {
  struct Point {
    double t, loss, slope;
    Tensor gradient;
  };

  Search(LBFGS& optimizer, const std::function<Tensor()>& loss, Location where)
      : self(optimizer),
        loss(loss),
        where(where),
        m(optimizer.options.history_size),
        numbers(optimizer.numbers_.to_vector<double>(where)) {}

  double& iterations() { return numbers[0]; }
  double& length() { return numbers[1]; }
  double& step_length() { return numbers[2]; }
  double& scale() { return numbers[3]; }
  /// The product of rows i and j of the history.
  double& gram(std::int64_t i, std::int64_t j) { return numbers[at(4 + i * 2 * m + j)]; }
  /// Where the k-th newest pair is.
  std::int64_t slot(std::int64_t k) { return (static_cast<std::int64_t>(length()) - 1 - k) % m; }

  double number(const VjpTensor& x) const { return x.tensor().item<double>(where); }
  double dot(const Tensor& a, const Tensor& b) const {
    return number(vjp::cast(sum((VjpTensor(a) * VjpTensor(b)).tensor(), {}, false, where), DType::f64));
  }
  double largest(const VjpTensor& x) const {
    return number(vjp::cast(max(vjp::abs(x).tensor(), {}, false, where), DType::f64));
  }

  Evaluation evaluate() {
    ++evaluations;
    const Tensor value = loss();
    const std::vector<Tensor> all = gradients(value, self.parameters_, {}, false, false, where);
    const NoGradGuard no_history;
    const vjp::LineGuard line(where);
    std::vector<VjpTensor> flat;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tensor& p = self.parameters_[i];
      const Tensor g = all[i].defined() ? all[i].detach() : zeros_like(p.detach(), {}, where);
      flat.push_back(reshape(astype(g, self.last_.dtype(), where), {-1}, where));
    }
    const Tensor gradient = vjp::concat(flat, 0).tensor();
    const Tensor now = value.detach();
    sync({now, gradient}, where);
    return {astype(now, DType::f64, where).item<double>(where), gradient};
  }

  /// The parameters as one vector, and setting them to start + t * direction.
  Tensor position() const {
    std::vector<VjpTensor> flat;
    for (const Tensor& p : self.parameters_)
      flat.push_back(reshape(astype(p.detach(), self.last_.dtype(), where), {-1}, where));
    return copy(vjp::concat(flat, 0).tensor(), where).sync(where);
  }
  void move(const Tensor& start, const Tensor& direction, double t) {
    const NoGradGuard no_history;
    const vjp::LineGuard line(where);
    const Tensor to = (VjpTensor(start) + VjpTensor(direction) * t).tensor();
    std::int64_t from = 0;
    for (const Tensor& p : self.parameters_) {
      const std::int64_t count = element_count(p.shape());
      const Tensor part = reshape(slice(to, 0, from, from + count, 1, where), p.shape(), where);
      Tensor(p).assign({astype(part, p.dtype(), where), where});
      from += count;
    }
    sync(self.parameters_, where);
  }

  /// Puts a pair of changes into the history; one along which the loss is not convex is left out.
  void remember(const Tensor& change, const Tensor& turn) {
    const double curvature = dot(change, turn);
    if (!(curvature > 1e-10)) return;
    ++length();
    const std::int64_t s = slot(0), y = m + s;
    select(self.history_, 0, s, where).assign({change, where});
    select(self.history_, 0, y, where).assign({turn, where});
    const Tensor both = stack({change, turn}, 1, where);
    const auto products = astype(matmul(self.history_, both, where), DType::f64, where).to_vector<double>(where);
    for (std::int64_t i = 0; i < 2 * m; ++i) {
      gram(i, s) = gram(s, i) = products[at(2 * i)];
      gram(i, y) = gram(y, i) = products[at(2 * i + 1)];
    }
    scale() = curvature / gram(y, y);
  }

  Tensor direction(const Tensor& gradient) {
    const auto along = astype(matmul(self.history_, gradient, where), DType::f64, where).to_vector<double>(where);
    std::vector<double> q(at(2 * m), 0.0);
    double of_gradient = 1;
    const auto product = [&](std::int64_t row) {
      double sum = of_gradient * along[at(row)];
      for (std::int64_t i = 0; i < 2 * m; ++i) sum += q[at(i)] * gram(i, row);
      return sum;
    };
    const std::int64_t count = std::min(static_cast<std::int64_t>(length()), m);
    std::vector<double> shares(at(count));
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t s = slot(k);
      shares[at(k)] = product(s) / gram(s, m + s);
      q[at(m + s)] -= shares[at(k)];
    }
    of_gradient *= scale();
    for (double& one : q) one *= scale();
    for (std::int64_t k = count; k-- > 0;) {
      const std::int64_t s = slot(k);
      q[at(s)] += shares[at(k)] - product(m + s) / gram(s, m + s);
    }
    const Tensor weights = astype(tensor(q).to(device(self.history_)), self.history_.dtype(), where);
    const VjpTensor d = VjpTensor(matmul(weights, self.history_, where)) + VjpTensor(gradient) * of_gradient;
    return (-d).tensor().sync(where);
  }

  Point point(const Tensor& start, const Tensor& direction, double t) {
    move(start, direction, t);
    const Evaluation e = evaluate();
    return {t, e.loss, dot(e.gradient, direction), e.gradient};
  }

  /// A step that satisfies the strong Wolfe conditions, or the best that was found. Nocedal and Wright, algorithms 3.5
  /// and 3.6.
  Point line_search(const Tensor& start, const Tensor& direction, const Point& zero, double t) {
    constexpr double kDecrease = 1e-4, kCurvature = 0.9;
    constexpr int kMost = 25;
    const auto falls = [&](const Point& p) { return p.loss <= zero.loss + kDecrease * p.t * zero.slope; };
    const auto is_flat = [&](const Point& p) { return std::abs(p.slope) <= -kCurvature * zero.slope; };
    Point low = zero, high{};
    int tries = 0;
    for (Point before = zero;; ++tries) {
      const Point now = point(start, direction, t);
      if (!falls(now) || (tries > 0 && now.loss >= before.loss) || !std::isfinite(now.loss)) {
        low = before, high = now;
        break;
      }
      if (is_flat(now) || tries == kMost) return now;
      if (now.slope >= 0) {
        low = now, high = before;
        break;
      }
      before = now;
      t *= 2;
    }
    for (; tries < kMost; ++tries) {
      const double width = high.t - low.t;
      // The minimum of the cubic through both points, well inside of them; else their middle.
      const double d1 = low.slope + high.slope - 3 * (high.loss - low.loss) / width;
      const double d2 = std::copysign(std::sqrt(std::max(d1 * d1 - low.slope * high.slope, 0.0)), width);
      double next = high.t - width * (high.slope + d2 - d1) / (high.slope - low.slope + 2 * d2);
      const double share = (next - low.t) / width;
      if (!(share > 0.1 && share < 0.9)) next = low.t + width / 2;
      const Point now = point(start, direction, next);
      if (!falls(now) || now.loss >= low.loss || !std::isfinite(now.loss)) {
        high = now;
      } else {
        if (is_flat(now)) return now;
        if (now.slope * width >= 0) high = low;
        low = now;
      }
      if (std::abs(high.t - low.t) * largest(direction) < self.options.tolerance_change) break;
    }
    if (low.t != 0) return point(start, direction, low.t);
    move(start, direction, 0);
    return zero;
  }

  void run(Evaluation now) {
    const LbfgsOptions& o = self.options;
    const std::int64_t most = o.max_evaluations.value_or(o.max_iterations * 5 / 4);
    const auto is_done = [&](const Evaluation& e) { return largest(e.gradient) <= o.tolerance_gradient; };
    if (is_done(now)) return;
    for (std::int64_t k = 0; k < o.max_iterations && evaluations < most; ++k) {
      const double rate = o.learning_rate;
      Tensor d;
      if (iterations()++ == 0) {
        d = (-VjpTensor(now.gradient)).tensor().sync(where);
        scale() = 1;
      } else {
        const VjpTensor before = select(self.last_, 0, 1, where);
        const Tensor change = (VjpTensor(select(self.last_, 0, 0, where)) * step_length()).tensor().sync(where);
        remember(change, (VjpTensor(now.gradient) - before).tensor().sync(where));
        d = direction(now.gradient);
      }
      double t = rate;
      if (iterations() == 1)
        t *= std::min(1.0, 1 / number(vjp::cast(sum(vjp::abs(now.gradient).tensor(), {}, false, where), DType::f64)));
      select(self.last_, 0, 0, where).assign({d, where});
      select(self.last_, 0, 1, where).assign({now.gradient, where});
      const double slope = dot(now.gradient, d), loss_before = now.loss;
      step_length() = t;
      if (slope > -o.tolerance_change) break;
      const Tensor start = position();
      if (o.strong_wolfe) {
        const Point found = line_search(start, d, {0, now.loss, slope, now.gradient}, t);
        step_length() = t = found.t;
        now = {found.loss, found.gradient};
      } else {
        move(start, d, t);
        // The value at the end is the next step's to find.
        if (k + 1 == o.max_iterations) break;
        now = evaluate();
      }
      if (is_done(now) || t * largest(d) <= o.tolerance_change || std::abs(now.loss - loss_before) < o.tolerance_change)
        break;
    }
  }

  LBFGS& self;
  const std::function<Tensor()>& loss;
  Location where;
  std::int64_t m, evaluations = 0;
  std::vector<double> numbers;
};

LBFGS::LBFGS(std::vector<Tensor> parameters, const LbfgsOptions& chosen, Location where)
    : options(chosen), parameters_(std::move(parameters)) {
  DType wide = DType::f32;
  std::int64_t n = 0;
  for (const Tensor& p : parameters_) {
    require_defined("LBFGS", p, where);
    if (!is_floating(p.dtype()))
      throw DTypeError(1101, format_error(1101, "DTypeError", "LBFGS: does not take " + std::string(name(p.dtype())),
                                          {{"parameter", to_string(p.dtype(), p.shape()), ""}}, where));
    if (p.dtype() == DType::f64) wide = DType::f64;
    n += element_count(p.shape());
  }
  const std::int64_t m = options.history_size;
  if (parameters_.empty() || n == 0) fail_parameter("LBFGS", "there are no parameters", where);
  if (m < 1) fail_parameter("LBFGS", "history_size is below 1", where);
  const Device on = device(parameters_[0]);
  history_ = zeros({2 * m, n}, wide, on, where);
  last_ = zeros({2, n}, wide, on, where);
  numbers_ = zeros({4 + 4 * m * m}, DType::f64, where);
}

double LBFGS::step(const std::function<Tensor()>& loss, Location where) {
  Search search(*this, loss, where);
  const Evaluation first = search.evaluate();
  const vjp::LineGuard line(where);
  search.run(first);
  numbers_.assign({tensor(search.numbers), where});
  sync({history_, last_, numbers_}, where);
  return first.loss;
}

}  // namespace fermata::optim
