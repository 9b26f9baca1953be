// Interpolation, iterative solvers, minimization and differential equations against what is known in closed form; their
// gradients against those of direct methods.
#include "fermata/solvers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fermata/fermata.h"

namespace fermata {
namespace {

class Solvers : public testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Solvers, testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

void expect_near(const Tensor& got, const Tensor& wanted, double tolerance) {
  ASSERT_EQ(got.shape(), wanted.shape());
  EXPECT_LE(max(abs(got - wanted)).item<double>(), tolerance) << got << "\nnot\n" << wanted;
}
Tensor leaf(const Tensor& x) {
  Tensor t = copy(x).sync();
  t.requires_grad(true);
  return t;
}
/// Diagonally dominant, and not symmetric.
Tensor matrix(std::int64_t n) {
  const Tensor i = astype(iota({n, n}, 0), DType::f64), j = astype(iota({n, n}, 1), DType::f64);
  return sin(i * 3 + j) + eye(n, {}, DType::f64) * (2.0 * static_cast<double>(n));
}

TEST_P(Solvers, interp) {
  const Tensor xp = tensor({0.0, 1.0, 3.0}, DType::f64), fp = tensor({1.0, 3.0, -1.0}, DType::f64);
  const Tensor x = tensor({-1.0, 0.0, 0.5, 2.0, 3.0, 4.0}, DType::f64);
  expect_near(interp(x, xp, fp), tensor({1.0, 1.0, 2.0, 1.0, -1.0, -1.0}, DType::f64), 0);
  expect_near(interp(x, xp, fp, -9, 9), tensor({-9.0, 1.0, 2.0, 1.0, -1.0, 9.0}, DType::f64), 0);
  const Tensor at = leaf(x), values = leaf(fp);
  sum(interp(at, xp, values)).backward();
  expect_near(at.grad(), tensor({0.0, 2.0, 2.0, -2.0, -2.0, 0.0}, DType::f64), 0);
  expect_near(values.grad(), tensor({2.5, 1.0, 2.5}, DType::f64), 1e-15);
  EXPECT_TRUE(std::isnan(interp(full({}, NAN, DType::f64), xp, fp).item<double>()));
}

TEST_P(Solvers, solve_tridiagonal) {
  const std::int64_t n = 13;
  const Tensor place = astype(iota(n), DType::f64);
  const Tensor lower = sin(place), diagonal = cos(place) + 4, upper = sin(place * 2), b = cos(place * 3);
  const Tensor x = solve_tridiagonal(lower, diagonal, upper, b);
  const Tensor nothing = zeros({1}, DType::f64);
  const Tensor product =
      diagonal * x + lower * concat({nothing, slice(x, 0, 0, -1)}) + upper * concat({slice(x, 0, 1), nothing});
  expect_near(product, b, 1e-14);
}

/// Few systems are solved in another way than many: both give the same, and so do their gradients.
TEST_P(Solvers, solve_tridiagonal_of_many_systems) {
  for (const std::int64_t n : {1, 2, 3, 17}) {
    const Shape sizes{5, 8, n};
    const Tensor place = astype(iota(sizes, 2), DType::f64), system = astype(iota(sizes, 1), DType::f64),
                 other = astype(iota(sizes, 0), DType::f64);
    const Tensor lower = leaf(sin(place + system)), diagonal = leaf(cos(place - other) + 4),
                 upper = leaf(sin(place * 2)), b = leaf(cos(place * 3 + system + other));
    const Tensor x = solve_tridiagonal(lower, diagonal, upper, b);
    sum(x * cos(place + other)).backward();
    for (std::int64_t i = 0; i < 5; ++i) {
      const Tensor l = leaf(lower[i].detach()), d = leaf(diagonal[i].detach()), u = leaf(upper[i].detach()),
                   r = leaf(b[i].detach());
      const Tensor few = solve_tridiagonal(l, d, u, r);
      sum(few * cos(place + other)[i]).backward();
      expect_near(x[i].detach(), few.detach(), 1e-14);
      for (const auto& [all, one] : {std::pair(lower, l), {diagonal, d}, {upper, u}, {b, r}})
        expect_near(all.grad()[i], one.grad(), 1e-13);
    }
    // One matrix for all of them, and as a program that is captured.
    const auto shared = [&](const Tensor& right) {
      return solve_tridiagonal(lower[0][0], diagonal[0][0], upper[0][0], right);
    };
    expect_near(compile(shared)(b.detach()), shared(b.detach()), 1e-15);
    expect_near(shared(b.detach())[2][3], shared(b.detach()[2][3]), 1e-14);
  }
}

TEST_P(Solvers, a_spline_that_is_no_knot_gives_a_cubic_back) {
  const auto cubic = [](const Tensor& t) { return ((t * 2 - 3) * t + 0.5) * t - 1; };
  const auto slope = [](const Tensor& t) { return (t * 6 - 6) * t + 0.5; };
  for (const std::int64_t n : {4, 5, 9}) {
    const Tensor x = pow(astype(iota(n), DType::f64), 1.3);
    const CubicSpline spline(x, cubic(x));
    const Tensor at = linspace(-1, 8, 31, DType::f64);
    expect_near(spline(at), cubic(at), 1e-9);
    expect_near(spline(at, 1), slope(at), 1e-9);
    expect_near(spline(at, 2), at * 12 - 6, 1e-9);
    expect_near(spline(at, 3), full({31}, 12, DType::f64), 1e-9);
  }
  const Tensor x = tensor({0.0, 1.0, 3.0}, DType::f64);
  const CubicSpline parabola(x, square(x));
  expect_near(parabola(tensor({0.5, 2.0}, DType::f64)), tensor({0.25, 4.0}, DType::f64), 1e-14);
  const CubicSpline line(slice(x, 0, 0, 2), slice(x, 0, 0, 2));
  expect_near(line(tensor({0.5, 2.0}, DType::f64)), tensor({0.5, 2.0}, DType::f64), 1e-15);
}

TEST_P(Solvers, ends_of_splines) {
  const Tensor x = tensor({0.0, 1.0, 2.5, 4.0, 5.0}, DType::f64), y = stack({sin(x), cos(x)}, 1);
  const Tensor ends = tensor({0.0, 5.0}, DType::f64), none = zeros({2, 2}, DType::f64);
  const CubicSpline natural(x, y, CubicSpline::Ends::natural), clamped(x, y, CubicSpline::Ends::clamped);
  expect_near(natural(ends, 2), none, 1e-14);
  expect_near(clamped(ends, 1), none, 1e-14);
  expect_near(natural(x), y, 1e-14);
  // SciPy 1.17: CubicSpline(x, sin(x), bc_type='natural')(1.7)
  EXPECT_NEAR(natural(tensor({1.7}, DType::f64)).to_vector<double>()[0], 0.9723480539041724, 1e-14);
  const Tensor values = leaf(sin(x));
  sum(CubicSpline(x, values)(tensor({0.3, 3.3}, DType::f64))).backward();
  const auto total = [&](const Tensor& v) { return sum(CubicSpline(x, v)(tensor({0.3, 3.3}, DType::f64))); };
  const Tensor bump = astype(iota(5) == 2, DType::f64) * 1e-5;
  const double difference = ((total(sin(x) + bump) - total(sin(x) - bump)) / 2e-5).item<double>();
  EXPECT_NEAR(values.grad().to_vector<double>()[2], difference, 1e-8);
}

TEST_P(Solvers, linear_systems_and_their_gradients) {
  const std::int64_t n = 6;
  const Tensor general = matrix(n), symmetric = matmul(general, matrix_transpose(general)) / 50.0;
  const Tensor right = cos(astype(iota(n), DType::f64));
  for (const bool is_symmetric : {true, false}) {
    const Tensor a = leaf(is_symmetric ? symmetric : general), b = leaf(right);
    const Tensor a2 = leaf(a.detach()), b2 = leaf(right);
    const auto product = [&](const Tensor& x) { return matmul(is_symmetric ? (a + matrix_transpose(a)) / 2 : a, x); };
    const SolverOptions options{.tolerance = 1e-12};
    const Solution found = is_symmetric ? cg(product, b, options) : gmres(product, b, options);
    EXPECT_TRUE(found.converged);
    EXPECT_LE(found.iterations, 20);
    const Tensor wanted = linalg::solve(is_symmetric ? (a2 + matrix_transpose(a2)) / 2 : a2, b2);
    expect_near(found.x.detach(), wanted.detach(), 1e-10);
    const Tensor weights = sin(astype(iota(n), DType::f64));
    sum(found.x * weights).backward();
    sum(wanted * weights).backward();
    expect_near(a.grad(), a2.grad(), 1e-9);
    expect_near(b.grad(), b2.grad(), 1e-9);
  }
}

TEST_P(Solvers, cg_reads_nothing_where_the_tolerance_is_zero) {
  const Tensor a = tensor({{4.0, 1.0}, {1.0, 3.0}}, DType::f64), b = tensor({1.0, 2.0}, DType::f64);
  const auto run = [&](const Tensor& right) {
    return cg([&](const Tensor& x) { return matmul(a, x); }, right, {.tolerance = 0, .iterations = 4}).x;
  };
  expect_near(run(b), linalg::solve(a, b), 1e-12);
  auto compiled = compile(run);
  for (int i = 0; i < 3; ++i) expect_near(compiled(b), linalg::solve(a, b), 1e-12);
  EXPECT_TRUE(cg([&](const Tensor& x) { return matmul(a, x); }, zeros({2}, DType::f64)).converged);
}

TEST_P(Solvers, gmres_restarts) {
  const Tensor a = matrix(30), b = cos(astype(iota(30), DType::f64));
  const Solution found =
      gmres([&](const Tensor& x) { return matmul(a, x); }, b, {.tolerance = 1e-10, .iterations = 400, .restart = 3});
  EXPECT_TRUE(found.converged);
  expect_near(matmul(a, found.x), b, 1e-8);
}

TEST_P(Solvers, find_root) {
  const Tensor a = leaf(tensor({2.0, 9.0, 0.25}, DType::f64));
  const Solution found =
      find_root([&](const Tensor& x) { return x * x - a; }, full({3}, 5, DType::f64), {.tolerance = 1e-13});
  EXPECT_TRUE(found.converged);
  expect_near(found.x.detach(), sqrt(a).detach(), 1e-12);
  sum(found.x).backward();
  expect_near(a.grad(), (0.5 / sqrt(a)).detach(), 1e-12);
  // Newton's method alone leaves the domain of this one.
  const Solution steep = find_root([](const Tensor& x) { return atan(x); }, full({1}, 3, DType::f64));
  EXPECT_TRUE(steep.converged);
  const Solution none = find_root([](const Tensor& x) { return x * x + 1; }, full({1}, 3, DType::f64));
  EXPECT_FALSE(none.converged);
}

TEST_P(Solvers, minimize) {
  const auto rosenbrock = [](const Tensor& x) {
    const Tensor head = slice(x, 0, 0, -1), tail = slice(x, 0, 1);
    return sum(100 * square(tail - square(head)) + square(1 - head));
  };
  const Minimum found = minimize(rosenbrock, full({4}, -1.2, DType::f64));
  EXPECT_TRUE(found.converged);
  expect_near(found.x, ones({4}, DType::f64), 1e-5);
  EXPECT_LE(found.evaluations, 200);
  const Minimum narrow =
      minimize([](const Tensor& x) { return sum(square(x - 3)); }, zeros({2, 2}), {.tolerance = 1e-4});
  EXPECT_TRUE(narrow.converged);
  expect_near(narrow.x, full({2, 2}, 3.0), 1e-3);
}

TEST_P(Solvers, odeint) {
  const Tensor turn = tensor({{0.0, 1.0}, {-1.0, 0.0}}, DType::f64), start = tensor({1.0, 0.0}, DType::f64);
  const std::vector<double> times{0, 0.5, 3, 3, 10};
  const OdeOptions tight{.relative = 1e-9, .absolute = 1e-10};
  const Tensor y = odeint([&](double, const Tensor& x, std::span<const Tensor>) { return matmul(turn, x); }, start,
                          times, {}, tight);
  const Tensor t = tensor(times);
  expect_near(y, stack({cos(t), -sin(t)}, 1), 1e-7);
  const Tensor back = odeint([&](double, const Tensor& x, std::span<const Tensor>) { return matmul(turn, x); },
                             select(y, 0, 4), {10, 0}, {}, tight);
  expect_near(select(back, 0, 1), start, 1e-7);
  const Tensor of_time = odeint([](double s, const Tensor& x, std::span<const Tensor>) { return x * 0 + 2 * s; }, start,
                                {0, 2}, {}, tight);
  expect_near(select(of_time, 0, 1), start + 4, 1e-9);
}

TEST_P(Solvers, gradients_of_odeint_by_the_adjoint) {
  // y' = -k y + c: y = c / k + (y0 - c / k) exp(-k t).
  const std::vector<double> times{0, 0.7, 2};
  const auto solution = [&](const Tensor& y0, const Tensor& k, const Tensor& c) {
    const Tensor t = expand_dims(tensor(times), 1);
    return c / k + (y0 - c / k) * exp(-k * t);
  };
  const auto numeric = [&](const Tensor& y0, const Tensor& k, const Tensor& c) {
    return odeint([](double, const Tensor& y, std::span<const Tensor> p) { return -p[0] * y + p[1]; }, y0, times,
                  {k, c}, {.relative = 1e-9, .absolute = 1e-10});
  };
  const Tensor weights = cos(astype(iota({3, 2}, 0) * 2 + iota({3, 2}, 1), DType::f64));
  std::vector<Tensor> gradients[2];
  for (const bool exact : {false, true}) {
    const Tensor y0 = leaf(tensor({1.0, -2.0}, DType::f64)), k = leaf(tensor({0.8, 1.5}, DType::f64)),
                 c = leaf(full({}, 0.3, DType::f64));
    const Tensor y = exact ? solution(y0, k, c) : numeric(y0, k, c);
    sum(y * weights).backward();
    gradients[exact] = {y.detach(), y0.grad(), k.grad(), c.grad()};
  }
  for (std::size_t i = 0; i < 4; ++i) expect_near(gradients[0][i], gradients[1][i], 1e-7);
}

TEST_P(Solvers, errors) {
  const Tensor x = ones({3}, DType::f64);
  EXPECT_THROW(interp(x, x, ones({2})), ShapeError);
  EXPECT_THROW(CubicSpline(x, ones({2})), ShapeError);
  EXPECT_THROW(cg([](const Tensor& t) { return t; }, ones({2}, DType::f16)), DTypeError);
  EXPECT_THROW(minimize([](const Tensor& t) { return t; }, x), ShapeError);
  EXPECT_THROW(find_root([](const Tensor& t) { return sum(t); }, x), ShapeError);
  EXPECT_EQ((x + 1).to_vector<double>(), (std::vector<double>{2, 2, 2}));
}

}  // namespace
}  // namespace fermata
