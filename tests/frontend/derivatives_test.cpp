// Pullbacks, pushforwards, Jacobians and Hessians, and how they nest. Every op's pushforward is checked by
// autograd_ops_test.cpp.
#include "fermata/derivatives.h"

#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class Derivatives : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Derivatives, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
Tensor cubes(const Tensor& x) { return x * x * x; }

TEST_P(Derivatives, PushforwardOfAFunctionOfOneTensor) {
  const auto [y, t] = jvp(cubes, tensor({1.0, 2.0, -3.0}, DType::f64), tensor({1.0, 10.0, 0.5}, DType::f64));
  EXPECT_EQ(values(y), (std::vector<double>{1, 8, -27}));
  EXPECT_EQ(values(t), (std::vector<double>{3, 120, 13.5}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_FALSE(t.requires_grad());
}

TEST_P(Derivatives, PushforwardOfSeveralArgumentsAndResults) {
  const Tensor x = random_f64({2, 3}, 0.5, 1.5, true, 1), w = random_f64({3, 2}, 0.5, 1.5, true, 2),
               dx = random_f64({2, 3}, 0.5, 1.5, true, 3), dw = random_f64({3, 2}, 0.5, 1.5, true, 4);
  const auto f = [](const Tensor& a, const Tensor& b) { return std::pair(matmul(a, b), sum(a)); };
  const auto [value, tangent] = jvp(f, std::tuple(x, w), std::tuple(dx, dw));
  expect_close(value.first, matmul(x, w), 1e-14);
  expect_close(tangent.first, matmul(dx, w) + matmul(x, dw), 1e-14);
  expect_close(tangent.second, sum(dx), 1e-14);
}

TEST_P(Derivatives, WhatDoesNotDependHasZeros) {
  const Tensor x = tensor({1.0, 2.0}, DType::f64), other = tensor({5.0}, DType::f64);
  const auto [y, t] = jvp([&](const Tensor& a) { return std::pair(other * 2, argmax(a)); }, x, ones_like(x));
  EXPECT_EQ(values(t.first), (std::vector<double>{0}));
  EXPECT_EQ(t.second.dtype(), DType::i64);
  const auto [z, pull] = pullback([&](const Tensor&, const Tensor& b) { return b * 3; }, std::tuple(x, other));
  const auto [gx, gb] = pull(ones_like(z));
  EXPECT_EQ(values(gx), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(gb), (std::vector<double>{3}));
}

TEST_P(Derivatives, TheIdentity) {
  const Tensor x = tensor({1.0, 2.0}, DType::f64);
  const auto [y, t] = jvp([](const Tensor& a) { return a; }, x, x * 5);
  EXPECT_EQ(values(y), values(x));
  EXPECT_EQ(values(t), (std::vector<double>{5, 10}));
}

TEST_P(Derivatives, LinearizeEvaluatesOnce) {
  int calls = 0;
  const Tensor x = tensor({0.5, 1.5}, DType::f64);
  const auto f = [&](const Tensor& a) { return ++calls, sin(a); };
  const auto [y, df] = linearize(f, x);
  for (const double scale : {1.0, -2.0, 0.0}) expect_close(df(full_like(x, scale)), cos(x) * scale, 1e-15);
  EXPECT_EQ(calls, 1);
}

TEST_P(Derivatives, PullbackMayBeCalledAgain) {
  const Tensor x = tensor({0.5, 1.5}, DType::f64);
  const auto [y, pull] = pullback([](const Tensor& a) { return exp(a); }, x);
  for (const double scale : {1.0, -2.0}) expect_close(pull(full_like(y, scale)), exp(x) * scale, 1e-15);
}

TEST_P(Derivatives, JacobiansAgree) {
  const Tensor x = random_f64({2, 3}, 0.5, 1.5, true, 1), w = random_f64({3, 4}, 0.5, 1.5, true, 2);
  const auto f = [&](const Tensor& a) { return softmax(matmul(a, w), -1); };
  const Tensor by_rows = jacrev(f)(x), by_columns = jacfwd(f)(x);
  EXPECT_EQ(by_rows.shape(), (Shape{2, 4, 2, 3}));
  expect_close(by_rows, by_columns, 1e-13);
  const Tensor along = sum(by_rows * w.reshape({1, 1, 4, 3}).slice(2, 0, 2), {2, 3});
  expect_close(along, jvp(f, x, w.reshape({4, 3}).slice(0, 0, 2)).second, 1e-13);
}

TEST_P(Derivatives, HessiansAgree) {
  const Tensor x = random_f64({3}, 0.5, 1.5, true, 1), v = random_f64({3}, 0.5, 1.5, true, 2);
  const auto f = [](const Tensor& a) { return sum(a * a * a) + prod(a); };
  const Tensor h = hessian(f)(x);
  expect_close(h, jacfwd(jacrev([&](const Tensor& a) { return f(a); }))(x), 1e-13);
  expect_close(h, jacfwd(jacfwd([&](const Tensor& a) { return f(a); }))(x), 1e-13);
  expect_close(h, jacrev(jacfwd([&](const Tensor& a) { return f(a); }))(x), 1e-13);
  expect_close(hvp(f, x, v), matmul(h, v), 1e-13);
  expect_close(jvp(grad(f), x, v).second, matmul(h, v), 1e-13);
}

TEST_P(Derivatives, PushforwardsNest) {
  // Perturbation confusion: d/dx x * (d/dy (x + y)) = 1 (Siskind and Pearlmutter, 2005).
  const auto inner = [](const Tensor& x) {
    return x * jvp([&](const Tensor& y) { return x + y; }, full({}, 1.0, DType::f64), full({}, 1.0, DType::f64)).second;
  };
  EXPECT_EQ(jvp(inner, full({}, 3.0, DType::f64), full({}, 1.0, DType::f64)).second.item<double>(), 1);
  const auto d = [](auto f) { return [f](const Tensor& x) { return jvp(f, x, ones_like(x)).second; }; };
  const Tensor x = tensor({0.7}, DType::f64);
  expect_close(d(d(d(cubes)))(x), tensor({6.0}, DType::f64), 1e-14);
  expect_close(grad([&](const Tensor& a) { return sum(d(d(cubes))(a)); })(x), tensor({6.0}, DType::f64), 1e-14);
}

TEST_P(Derivatives, InsideVmap) {
  const Tensor x = random_f64({4, 3}, 0.5, 1.5, true, 1), t = random_f64({4, 3}, 0.5, 1.5, true, 2);
  const auto g = [](const Tensor& a) { return sin(a) * sum(a); };
  const Tensor found = vmap([&](const Tensor& a, const Tensor& b) { return jvp(g, a, b).second; })(x, t);
  expect_close(found, cos(x) * t * sum(x, {1}, true) + sin(x) * sum(t, {1}, true), 1e-14);
  // One tangent for all, and one point for all.
  const Tensor shared = vmap([&](const Tensor& a) { return jvp(g, a, t[0]).second; })(x);
  expect_close(shared, cos(x) * t[0] + 0 + sin(x) * sum(t[0]) + cos(x) * t[0] * (sum(x, {1}, true) - 1), 1e-13);
  const Tensor tangents = vmap([&](const Tensor& b) { return jvp(g, x[0], b).second; })(t);
  expect_close(tangents, cos(x[0]) * t * sum(x[0]) + sin(x[0]) * sum(t, {1}, true), 1e-13);
  const Tensor hessians = vmap(hessian([](const Tensor& a) { return sum(cubes(a)); }))(x);
  expect_close(hessians, expand_dims(x * 6, {1}) * eye(3, {}, DType::f64), 1e-13);
}

TEST_P(Derivatives, OfABatch) {
  const Tensor x = random_f64({4, 3}, 0.5, 1.5, true, 1), t = random_f64({4, 3}, 0.5, 1.5, true, 2);
  const auto f = vmap([](const Tensor& a) { return a * sum(a); });
  expect_close(jvp(f, x, t).second, t * sum(x, {1}, true) + x * sum(t, {1}, true), 1e-14);
}

TEST_P(Derivatives, GradientsFromOutsideReachThrough) {
  const Tensor w = tensor({2.0, 3.0}, DType::f64).requires_grad(true), x = tensor({0.5, 0.25}, DType::f64);
  const auto [y, t] = jvp([&](const Tensor& a) { return a * a * w; }, x, ones_like(x));
  EXPECT_TRUE(y.requires_grad());
  sum(t).backward();  // 2 x w
  EXPECT_EQ(values(w.grad()), (std::vector<double>{1, 0.5}));
  const Tensor leaf = copy(x).requires_grad(true);
  const auto pulled = pullback([](const Tensor& a) { return cubes(a); }, leaf);
  sum(pulled.second(ones_like(x))).backward();
  EXPECT_EQ(values(leaf.grad()), (std::vector<double>{3, 1.5}));
  const auto quiet = no_grad([&] { return jvp([&](const Tensor& a) { return a * w; }, leaf, ones_like(x)); });
  EXPECT_FALSE(quiet.first.requires_grad());
  EXPECT_FALSE(quiet.second.requires_grad());
  EXPECT_EQ(values(quiet.second), (std::vector<double>{2, 3}));
}

TEST_P(Derivatives, ValueAndGradWithAuxiliaryResults) {
  const Tensor x = tensor({1.0, 2.0}, DType::f64);
  const auto f = [](const Tensor& a) { return std::tuple(sum(a * a), a * 2, 7); };
  const auto [value, gradient] = value_and_grad(f)(x);
  EXPECT_EQ(std::get<0>(value).item<double>(), 5);
  EXPECT_EQ(values(std::get<1>(value)), (std::vector<double>{2, 4}));
  EXPECT_EQ(std::get<2>(value), 7);
  EXPECT_FALSE(std::get<1>(value).requires_grad());
  EXPECT_EQ(values(gradient), (std::vector<double>{2, 4}));
}

TEST(DerivativesCompiled, ArePartOfACompiledFunction) {
  auto step = compile([](const Tensor& x, const Tensor& t) { return jvp(cubes, x, t).second; });
  auto rows = compile([](const Tensor& x) { return jacfwd(cubes)(x); });
  for (const double at : {1.0, 2.0, 3.0}) {
    const Tensor x = tensor({at, -at}, DType::f64);
    expect_close(step(x, x * 2), cubes(x) * 6, 1e-14);
    expect_close(rows(x), x * x * 3 * eye(2, {}, DType::f64), 1e-14);
  }
}

/// In compiled mode the transposed map is recorded and never computed.
TEST(DerivativesCompiled, APushforwardComputesNoBackwardPass) {
  const Tensor x = random_f64({64}, 0.5, 1.5, true, 1);
  const auto [y, t] = jvp([](const Tensor& a) { return sin(a) * 2; }, x, ones_like(x));
  const std::string listing = explain(t);
  EXPECT_EQ(listing.find("sum"), std::string::npos) << listing;
  expect_close(t, cos(x) * 2, 1e-15);
}

TEST_P(Derivatives, TangentsFitTheirTensors) {
  const Tensor x = zeros({2, 3}), t = zeros({3});
  const auto same = [](const Tensor& a) { return a; };
  EXPECT_EQ(message<GradientError>([&] { jvp(same, x, t); }),
            "FM1760 GradientError: jvp: tangent 0 must be floating and have the shape of its tensor\n"
            "  tensor  f32[2, 3]\n"
            "  tangent f32[3]\n"
            "  at      HERE");
  EXPECT_EQ(message<GradientError>([&] { jvp(same, x, std::pair(x, x)); }),
            "FM1760 GradientError: jvp: 2 tangents for 1 tensors\n"
            "  at   HERE");
  EXPECT_EQ(message<GradientError>([&] { pullback([](const Tensor& a) { return sum(a); }, x).second(x); }),
            "FM1760 GradientError: pullback: cotangent 0 must be floating and have the shape of its tensor\n"
            "  tensor    f32[]\n"
            "  cotangent f32[2, 3]\n"
            "  at        HERE");
  EXPECT_EQ(values(jvp(same, x, x).second), std::vector<double>(6));
}

}  // namespace
}  // namespace fermata
