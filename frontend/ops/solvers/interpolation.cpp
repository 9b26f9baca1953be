// See fermata/solvers.h: interpolation between points.
#include <fmt/format.h>

#include "fermata/control_flow.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/solvers.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

void check_points(std::string_view function, const Tensor& x, const Tensor& y, std::int64_t least, Location where) {
  require_defined(function, x, where), require_defined(function, y, where);
  if (x.rank() != 1 || y.rank() < 1 || y.size(0) != x.size(0) || x.size(0) < least)
    throw ShapeError(
        1021,
        format_error(1021, "ShapeError",
                     fmt::format("{}: requires at least {} points with one value each", function, least),
                     {{"x", to_string(x.dtype(), x.shape()), ""}, {"y", to_string(y.dtype(), y.shape()), ""}}, where));
}

DType floating_of(const Tensor& a, const Tensor& b) {
  const auto common = promote(a.dtype(), b.dtype());
  return common && is_floating(*common) ? *common : DType::f32;
}

/// The last of `count` intervals that begins at or before each place.
Tensor interval_of(const Tensor& points, const Tensor& at, Location where) {
  const VjpTensor after = searchsorted(points, at.detach(), Side::right, {}, where);
  return maximum(minimum(after - 1, points.size(0) - 2), 0).tensor();
}

Tensor later(const Tensor& x, Location where) { return slice(x, 0, 1, kNone, 1, where); }
Tensor earlier(const Tensor& x, Location where) { return slice(x, 0, 0, -1, 1, where); }

/// A vector along axis 0 beside something of `rank` axes.
Tensor column(const Tensor& x, unsigned rank, Location where) {
  Shape shape{x.size(0)};
  while (shape.rank() < rank) shape.push_back(1);
  return reshape(x, shape, where);
}

/// A tridiagonal system: those before and behind the diagonal, the diagonal and the right side, all [..B, N].
struct Tridiagonal {
  VjpTensor before, diagonal, behind, right;
};

/// Elimination from the first equation to the last one and back (the algorithm of Thomas): of all systems at once.
Tensor solve_in_order(const Tridiagonal& system, Location where) {
  using Two = std::tuple<Tensor, Tensor>;
  using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
  const auto first = [&](const VjpTensor& x) { return moveaxis(x.tensor(), -1, 0, where); };
  const Four rows(first(system.before), first(system.diagonal), first(system.behind), first(system.right));
  const Tensor none = zeros_like(select(std::get<0>(rows), 0, 0, where), {}, where);
  const auto eliminate = [where](const Two& last, const Four& row) {
    const vjp::LineGuard line(where);
    const VjpTensor behind = std::get<0>(last), right = std::get<1>(last);
    const VjpTensor a = std::get<0>(row), d = std::get<1>(row), c = std::get<2>(row), r = std::get<3>(row);
    const VjpTensor factor = 1 / (d - a * behind);
    const Two next((c * factor).tensor(), ((r - a * right) * factor).tensor());
    return std::pair(next, next);
  };
  const auto substitute = [where](const Tensor& next, const Two& row) {
    const vjp::LineGuard line(where);
    const Tensor x = (VjpTensor(std::get<1>(row)) - VjpTensor(std::get<0>(row)) * next).tensor();
    return std::pair(x, x);
  };
  const Two eliminated = scan(eliminate, Two(none, none), rows, false, where).second;
  return moveaxis(scan(substitute, none, eliminated, true, where).second, 0, -1, where);
}

/// Each equation is rid of its neighbors, which leaves those twice as far away, until there are none (parallel cyclic
/// reduction).
Tensor solve_by_reduction(const Tridiagonal& system, Location where) {
  VjpTensor a = system.before, d = system.diagonal, c = system.behind, r = system.right;
  const VjpTensor zero = a * 0;
  const std::int64_t n = a.shape().back();
  for (std::int64_t step = 1; step < n; step *= 2) {
    const auto moved = [&](const VjpTensor& x, bool up, double fill) {  // x[i - step], or x[i + step]
      const VjpTensor edge = slice((zero + fill).tensor(), -1, 0, step, 1, where);
      const VjpTensor rest = up ? VjpTensor(slice(x.tensor(), -1, 0, n - step, 1, where))
                                : VjpTensor(slice(x.tensor(), -1, step, n, 1, where));
      const std::array both{up ? edge.tensor() : rest.tensor(), up ? rest.tensor() : edge.tensor()};
      return VjpTensor(concat(both, -1, where));
    };
    const VjpTensor alpha = -a / moved(d, true, 1), gamma = -c / moved(d, false, 1);
    const VjpTensor next_d = d + alpha * moved(c, true, 0) + gamma * moved(a, false, 0);
    const VjpTensor next_r = r + alpha * moved(r, true, 0) + gamma * moved(r, false, 0);
    a = alpha * moved(a, true, 0), c = gamma * moved(c, false, 0);
    d = next_d, r = next_r;
  }
  return (r / d).tensor();
}

}  // namespace

Tensor interp(const Tensor& x, const Tensor& xp, const Tensor& fp, std::optional<double> left,
              std::optional<double> right, Location where) {
  require_defined("interp", x, where);
  check_points("interp", xp, fp, 1, where);
  if (fp.rank() != 1) check_points("interp", xp, reshape(fp, {1, -1}, where), 1, where);
  const vjp::LineGuard line(where);
  const auto with_x = promote(floating_of(x, xp), floating_of(fp, fp));
  const DType dtype = with_x.value_or(DType::f64);
  const Tensor at = astype(x, dtype, where), points = astype(xp, dtype, where), values = astype(fp, dtype, where);
  const std::int64_t n = xp.size(0);
  const VjpTensor first = select(points, 0, 0, where), last = select(points, 0, n - 1, where);
  const VjpTensor before = left ? VjpTensor(*left) : VjpTensor(select(values, 0, 0, where)),
                  behind = right ? VjpTensor(*right) : VjpTensor(select(values, 0, n - 1, where));
  VjpTensor inside = select(values, 0, 0, where);
  if (n > 1) {
    const Tensor interval = interval_of(points, at, where);
    const Tensor width = (VjpTensor(later(points, where)) - earlier(points, where)).tensor();
    const VjpTensor rise = VjpTensor(later(values, where)) - earlier(values, where);
    const VjpTensor slope = vjp::where(VjpTensor(width) == 0, 0, rise / vjp::where(VjpTensor(width) == 0, 1, width));
    const VjpTensor distance = VjpTensor(at) - take(points, interval, 0, where);
    inside = VjpTensor(take(values, interval, 0, where)) + distance * take(slope.tensor(), interval, 0, where);
  }
  const VjpTensor clipped = vjp::where(VjpTensor(at) < first, before, vjp::where(VjpTensor(at) > last, behind, inside));
  return vjp::where(isnan(VjpTensor(at)), at, clipped).tensor();
}

Tensor solve_tridiagonal(const Tensor& lower, const Tensor& diagonal, const Tensor& upper, const Tensor& b,
                         Location where) {
  for (const Tensor* t : {&lower, &diagonal, &upper, &b}) require_defined("solve_tridiagonal", *t, where);
  const vjp::LineGuard line(where);
  // All in the shape and dtype of the result.
  const VjpTensor zero = (VjpTensor(lower) + diagonal + upper + b) * 0;
  const std::int64_t n = zero.shape().back();
  const VjpTensor place = iota(zero.shape(), zero.shape().rank() - 1u, device(b), where);
  const Tridiagonal system{vjp::where(place == 0, 0, zero + lower), zero + diagonal,
                           vjp::where(place == n - 1, 0, zero + upper), zero + b};
  // One equation after the other does the least work, but a step of few systems takes longer than their elements.
  constexpr std::int64_t kManySystems = 32;
  const bool in_order =
      device(zero.tensor(), where) == cpu() && n > 1 && element_count(zero.shape()) >= kManySystems * n;
  return in_order ? solve_in_order(system, where) : solve_by_reduction(system, where);
}

CubicSpline::CubicSpline(const Tensor& x, const Tensor& y, Ends ends, Location where) {
  check_points("CubicSpline", x, y, 2, where);
  const vjp::LineGuard line(where);
  const DType dtype = floating_of(x, y);
  x_ = astype(x, dtype, where);
  const Tensor values = astype(y, dtype, where);
  const std::int64_t n = x.size(0);
  const unsigned rank = y.rank();
  const VjpTensor h = column((VjpTensor(later(x_, where)) - earlier(x_, where)).tensor(), rank, where);
  const VjpTensor secant = (VjpTensor(later(values, where)) - earlier(values, where)) / h;
  const auto at = [&](const VjpTensor& t, std::int64_t i) {
    return VjpTensor(slice(t.tensor(), 0, i, i + 1, 1, where));
  };
  const auto joined = [&](std::initializer_list<VjpTensor> parts) {
    std::vector<Tensor> tensors;
    for (const VjpTensor& part : parts) tensors.push_back(part.tensor());
    return VjpTensor(concat(tensors, 0, where));
  };
  const auto like = [&](const VjpTensor& t, double value) { return t * 0 + value; };
  // Slopes at the points; inside: h_i s_(i-1) + 2 (h_(i-1) + h_i) s_i + h_(i-1) s_(i+1) = 3 (h_i m_(i-1) + h_(i-1)
  // m_i).
  VjpTensor slopes;
  const VjpTensor one = like(at(h, 0), 1), none = like(at(h, 0), 0);
  if (n == 2 && ends != Ends::clamped) {
    slopes = joined({secant, secant});
  } else if (n == 3 && ends == Ends::not_a_knot) {  // one parabola
    const VjpTensor h0 = at(h, 0), h1 = at(h, 1), m0 = at(secant, 0), m1 = at(secant, 1), bend = (m1 - m0) / (h0 + h1);
    slopes = joined({m0 - bend * h0, m0 + bend * h0, m1 + bend * h1});
  } else {
    VjpTensor first_diagonal = one, first_upper = none, first = like(at(secant, 0), 0), last_diagonal = one,
              last_lower = none, last = first;
    if (ends == Ends::natural) {
      first_diagonal = like(one, 2), first_upper = one, first = at(secant, 0) * 3;
      last_diagonal = like(one, 2), last_lower = one, last = at(secant, n - 2) * 3;
    } else if (ends == Ends::not_a_knot) {
      const VjpTensor h0 = at(h, 0), h1 = at(h, 1), g0 = at(h, n - 2), g1 = at(h, n - 3);
      first_diagonal = h1, first_upper = h0 + h1;
      first = ((h0 + (h0 + h1) * 2) * h1 * at(secant, 0) + square(h0) * at(secant, 1)) / (h0 + h1);
      last_diagonal = g1, last_lower = g0 + g1;
      last = (square(g0) * at(secant, n - 3) + ((g0 + g1) * 2 + g0) * g1 * at(secant, n - 2)) / (g0 + g1);
    }
    VjpTensor lower = last_lower, diagonal = joined({first_diagonal, last_diagonal}), upper = first_upper,
              right = joined({first, last});
    lower = joined({none, last_lower}), upper = joined({first_upper, none});
    if (n > 2) {
      const VjpTensor h_before = earlier(h.tensor(), where), h_after = later(h.tensor(), where);
      const VjpTensor m_before = earlier(secant.tensor(), where), m_after = later(secant.tensor(), where);
      lower = joined({none, h_after, last_lower}), upper = joined({first_upper, h_before, none});
      diagonal = joined({first_diagonal, (h_before + h_after) * 2, last_diagonal});
      right = joined({first, (h_after * m_before + h_before * m_after) * 3, last});
    }
    const auto along_last = [&](const VjpTensor& t) {
      std::vector<std::int64_t> order;
      for (unsigned i = 1; i < rank; ++i) order.push_back(i);
      order.push_back(0);
      return permute(t.tensor(), order, where);
    };
    std::vector<std::int64_t> back{static_cast<std::int64_t>(rank) - 1};
    for (unsigned i = 0; i + 1 < rank; ++i) back.push_back(i);
    slopes =
        permute(solve_tridiagonal(along_last(lower), along_last(diagonal), along_last(upper), along_last(right), where),
                back, where);
  }
  const VjpTensor before = earlier(slopes.tensor(), where), after = later(slopes.tensor(), where);
  const VjpTensor cubic = (before + after - secant * 2) / h;
  coefficients_[0] = earlier(values, where);
  coefficients_[1] = before.tensor();
  coefficients_[2] = ((secant - before) / h - cubic).tensor();
  coefficients_[3] = (cubic / h).tensor();
}

Tensor CubicSpline::operator()(const Tensor& given, int derivative, Location where) const {
  require_defined("CubicSpline", given, where);
  if (derivative < 0 || derivative > 3)
    throw ValueError(1418, format_error(1418, "ValueError",
                                        fmt::format("CubicSpline: a derivative of order {}, not 0 to 3", derivative),
                                        describe(given), where));
  const vjp::LineGuard line(where);
  const Tensor at = astype(given, x_.dtype(), where);
  const Tensor interval = interval_of(x_, at, where);
  Shape shape = at.shape();
  for (unsigned i = 1; i < coefficients_[0].rank(); ++i) shape.push_back(1);
  const VjpTensor t = reshape((VjpTensor(at) - take(x_, interval, 0, where)).tensor(), shape, where);
  VjpTensor sum = 0.0;
  for (int power = 3; power >= derivative; --power) {
    double factor = 1;
    for (int i = 0; i < derivative; ++i) factor *= power - i;
    const VjpTensor c = VjpTensor(take(coefficients_[power], interval, 0, where)) * factor;
    sum = power == 3 ? c : sum * t + c;
  }
  return sum.tensor();
}

}  // namespace fermata
