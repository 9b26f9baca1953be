// What autograd promises besides derivatives: leaves, views, writes in place, what is freed when, errors, and tapes of
// any length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/autograd/autograd_backward.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "runtime/step_profile.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using ::testing::ElementsAre;

class Autograd : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Autograd, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Tensor leaf(std::initializer_list<double> values) { return tensor(values, DType::f64).requires_grad(true); }
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

/// The full text of a GradientError, thrown at `line`.
template <class F> void expect_error(int line, const std::string& first, const std::string& last, F&& call) {
  const std::string expected = first + "\n  at   frontend/autograd_test.cpp:" + std::to_string(line) + last;
  try {
    call();
    FAIL() << "no error; expected\n" << expected;
  } catch (const GradientError& error) { EXPECT_EQ(error.what(), expected); }
}

TEST_P(Autograd, LeavesCollectGradients) {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), still = tensor({5.0, 6.0});
  EXPECT_TRUE(x.requires_grad());
  EXPECT_FALSE(still.requires_grad());
  EXPECT_FALSE(x.grad().defined());
  const Tensor y = sum(x * w + still);
  EXPECT_TRUE(y.requires_grad());
  y.backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(3, 4));
  EXPECT_THAT(values(w.grad()), ElementsAre(1, 2));
  EXPECT_FALSE(still.grad().defined());
  const Tensor before = x.grad();
  sum(x * 10).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(13, 14));
  EXPECT_THAT(values(before), ElementsAre(13, 14));  // grad() is one identity
  EXPECT_THAT(values(w.grad()), ElementsAre(1, 2));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_THAT(values(before), ElementsAre(13, 14));
  sum(x).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(1, 1));
  EXPECT_FALSE(x.grad().requires_grad());
}

TEST_P(Autograd, GradientsOfOneValueDoNotAlias) {
  const Tensor a = leaf({1}), b = leaf({2});
  sum(a + b).backward();
  a.grad().assign(5);
  EXPECT_THAT(values(b.grad()), ElementsAre(1));
}

TEST_P(Autograd, ASharedOperandAddsUp) {
  const Tensor x = leaf({2});
  const Tensor y = x * x;  // used three times, at different depths
  sum(y * y + exp(y) * 0 + y).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(4 * 8 + 2 * 2));
}

TEST_P(Autograd, SeedWeighsTheElements) {
  const Tensor x = leaf({1, 2});
  (x * x).backward(tensor({10.0, 100.0}));
  EXPECT_THAT(values(x.grad()), ElementsAre(20, 400));
}

TEST_P(Autograd, NothingIsRecordedUnderNoGrad) {
  const Tensor x = leaf({1, 2});
  EXPECT_TRUE(grad_enabled());
  {
    const NoGradGuard quiet;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * 2).requires_grad());
    {
      const EnableGradGuard loud;
      EXPECT_TRUE(grad_enabled());
      EXPECT_TRUE((x * 2).requires_grad());
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_FALSE(no_grad([&] { return x * 2; }).requires_grad());
  EXPECT_TRUE((x * 2).requires_grad());
  bool enabled_elsewhere = false;
  const NoGradGuard quiet;
  std::thread([&] { enabled_elsewhere = grad_enabled(); }).join();
  EXPECT_TRUE(enabled_elsewhere);
}

TEST_P(Autograd, IntegersHaveNoHistory) {
  const Tensor x = leaf({1.5, 2.5});
  EXPECT_FALSE((x > 2).requires_grad());
  EXPECT_FALSE(argmax(x).requires_grad());
  EXPECT_FALSE(x.astype(DType::i64).requires_grad());
  // Zero everywhere is a derivative.
  sum(floor(x) + sign(x) * x).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(1, 1));
}

TEST_P(Autograd, DetachCutsTheHistory) {
  const Tensor x = leaf({3});
  const Tensor y = x * x;
  EXPECT_FALSE(y.detach().requires_grad());
  sum(y.detach() * x).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(9));
}

TEST_P(Autograd, AnOptimizerWritesItsLeaves) {
  Tensor w = leaf({1, 2});
  const Tensor alias = w;
  for (int i = 0; i < 3; ++i) {
    w.zero_grad();
    sum(w * w).backward();
    const NoGradGuard quiet;
    w -= 0.25 * w.grad();
  }
  EXPECT_THAT(values(alias), ElementsAre(0.125, 0.25));
  EXPECT_TRUE(w.requires_grad());
  sum(w).backward();
  EXPECT_TRUE(w.grad().defined());
}

TEST_P(Autograd, InPlaceWritesTakeTheHistory) {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  const Tensor z = y * y;  // has saved the old value, which stays
  y += x;
  y *= y;
  sum(y + z).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(2 * 9 * 1 + 8 * 1, 2 * 9 * 2 + 8 * 2));
  Tensor plain = tensor({0.0, 0.0}, DType::f64);
  plain += x;
  EXPECT_TRUE(plain.requires_grad());
  plain.assign(7);
  EXPECT_FALSE(plain.requires_grad());
  {
    const NoGradGuard quiet;
    y *= 2;
  }
  EXPECT_FALSE(y.requires_grad());
}

TEST_P(Autograd, ViewsFollowTheirBase) {
  const Tensor x = leaf({1, 2, 3, 4});
  Tensor y = x * 1;
  const Tensor grid = y.reshape({2, 2}), row = grid[1];
  sum(row * row).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 0, 6, 8));
  x.zero_grad();
  y *= 10;  // the views see it, and its history
  sum(grid[0] * row).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(300, 400, 100, 200));
  x.zero_grad();
  sum(x.slice(0, 1, 3) * 2).backward();  // a view of the leaf itself
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 2, 2, 0));
}

TEST_P(Autograd, AViewMadeBeforeItsBaseWantsAGradient) {
  Tensor x = tensor({1.0, 2.0, 3.0}, DType::f64);
  const Tensor tail = x.slice(0, 1, 3);
  EXPECT_FALSE((tail * 2).requires_grad());
  x.requires_grad(true);
  sum(tail * tail).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 4, 6));
}

TEST_P(Autograd, WritesThroughViews) {
  const Tensor x = leaf({5, 7});
  Tensor buffer = zeros({2, 3}, DType::f64);
  Tensor column = transpose(buffer)[1];
  column.assign(x * x);
  EXPECT_TRUE(buffer.requires_grad());
  buffer *= 3;
  sum(buffer * tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}})).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(3 * 2 * 10, 3 * 5 * 14));
  // What a write replaces has no gradient any more.
  x.zero_grad();
  Tensor y = concat({x, x});
  y.slice(0, 0, 4, 2).assign(0);
  sum(y * tensor({1.0, 10.0, 100.0, 1000.0})).backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(0, 1010));
}

TEST_P(Autograd, WrittenViewsAgreeWithFiniteDifferences) {
  check_both_orders("write through views",
                    [](const Inputs& in) {
                      Tensor y = square(in[0]);
                      transpose(y)[1].assign(in[1] * y[0].slice(0, 0, 2));
                      Tensor part = y.slice(1, 0, 3, 2);
                      part *= part;
                      y.reshape({6}).slice(0, 5, kNone, -2) += in[1][0];
                      return y * y;
                    },
                    {random_f64({2, 3}, 0.5, 1.5, true, 71), random_f64({2}, 0.5, 1.5, true, 72)});
}

TEST_P(Autograd, SavedValuesAreLetGoUnlessRetained) {
  const Tensor x = leaf({1, 2});
  const Tensor y = sum(exp(x));
  y.backward({}, true);
  y.backward();
  EXPECT_NEAR(values(x.grad())[0], 2 * std::exp(1.0), 1e-12);
  const std::string saved = "frontend/autograd_test.cpp:" + std::to_string(__LINE__ - 4);
  expect_error(__LINE__ + 1, "FM1713 GradientError: backward: the values saved by exp at " + saved + " have been freed",
               "\n  hint pass retain_graph = true to the first backward pass", [&] { y.backward(); });
  EXPECT_NEAR(values(x.grad())[0], 2 * std::exp(1.0), 1e-12);
}

TEST_P(Autograd, GradientsOfIntermediateValues) {
  const Tensor x = leaf({2, 3});
  const Tensor y = x * x, part = y[0];
  const std::vector<Tensor> g = gradients(sum(y * y) + part * 5, {y, x, part});
  EXPECT_THAT(values(g[0]), ElementsAre(13, 18));
  EXPECT_THAT(values(g[1]), ElementsAre(52, 108));
  EXPECT_THAT(values(g[2]), ElementsAre(5));
  EXPECT_FALSE(x.grad().defined());
  const Tensor other = leaf({1});
  EXPECT_THAT(values(gradients(sum(x), {other})[0]), ElementsAre(0));
}

TEST_P(Autograd, GradientsCanBeDifferentiated) {
  const Tensor x = leaf({2}), w = leaf({3});
  const Tensor y = sum(x * x * x * w);
  const Tensor dx = gradients(y, {x}, {}, true)[0];
  EXPECT_THAT(values(dx), ElementsAre(36));
  const Tensor penalty = sum(dx * dx);
  penalty.backward();
  EXPECT_THAT(values(w.grad()), ElementsAre(2 * 36 * 12));  // d (3 x^2 w)^2 / dw
  EXPECT_THAT(values(x.grad()), ElementsAre(2 * 36 * 36));
}

TEST_P(Autograd, GradOfAFunction) {
  const auto f = [](const Tensor& x) { return sum(x * x * x); };
  EXPECT_THAT(values(grad(f)(tensor({1.0, 2.0}))), ElementsAre(3, 12));
  const Tensor x = tensor(2.0, DType::f64);
  EXPECT_EQ(grad(grad(f))(x).item<double>(), 12);
  EXPECT_EQ(grad(grad(grad(f)))(x).item<double>(), 6);
  EXPECT_FALSE(grad(grad(f))(x).requires_grad());
  const auto g = [](const Tensor& a, double scale, const std::vector<Tensor>& ws) {
    return sum(a * ws[0] * scale + ws[1] * ws[1]);
  };
  const std::vector<Tensor> ws{tensor({2.0}), tensor({3.0})};
  const auto [value, both] = value_and_grad<2, 0>(g)(tensor({5.0}), 10, ws);
  const auto& [dws, da] = both;
  EXPECT_EQ(value.item<double>(), 109);
  EXPECT_THAT(values(dws[0]), ElementsAre(50));
  EXPECT_THAT(values(dws[1]), ElementsAre(6));
  EXPECT_THAT(values(da), ElementsAre(20));
}

TEST_P(Autograd, NestedDerivativesAreKeptApart) {
  // d/dx x * (d/dy (x + y))(1) at x = 1 is 1; mixing up the two levels would give 2 (Siskind and Pearlmutter, 2005).
  const auto f = [](const Tensor& x) {
    return x * grad([&](const Tensor& y) { return x + y; })(tensor(1.0, DType::f64));
  };
  EXPECT_EQ(grad(f)(tensor(1.0, DType::f64)).item<double>(), 1);
  const auto h = [](const Tensor& x) {
    return x * grad([&](const Tensor& y) { return x * x * y * y; })(tensor(3.0, DType::f64));
  };
  EXPECT_EQ(grad(h)(tensor(2.0, DType::f64)).item<double>(), 3 * 6 * 4);
}

TEST_P(Autograd, GradOfAFunctionReachesParametersOutside) {
  const Tensor w = leaf({3});
  const auto [value, dx] = value_and_grad([&](const Tensor& x) { return sum(x * x * w); })(tensor({2.0}, DType::f64));
  EXPECT_TRUE(dx.requires_grad());
  sum(dx * dx).backward({}, true);
  EXPECT_THAT(values(w.grad()), ElementsAre(2 * 12 * 4));
  w.zero_grad();
  value.backward();
  EXPECT_THAT(values(w.grad()), ElementsAre(4));
  const NoGradGuard quiet;
  EXPECT_FALSE(grad([&](const Tensor& x) { return sum(x * x * w); })(tensor({2.0}, DType::f64)).requires_grad());
}

TEST_P(Autograd, AFunctionMayWriteItsArgument) {
  const Tensor x = tensor({2.0, 3.0}, DType::f64);
  const auto f = [](Tensor t) {
    t *= t;
    t[0] += 1;
    return sum(t * t);
  };
  EXPECT_THAT(values(grad(f)(x)), ElementsAre(2 * 5 * 4, 2 * 9 * 6));
  EXPECT_THAT(values(x), ElementsAre(2, 3));
}

TEST_P(Autograd, AMillionOpsBackAndForgotten) {
  constexpr int kOps = 1000000;
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < kOps; ++i) y = y + 1;
  y.backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(1));
  y = Tensor();  // frees the tape
  Tensor z = x;
  for (int i = 0; i < kOps; ++i) z = z * 1.0000001;
  EXPECT_TRUE(z.requires_grad());
  z = Tensor();  // a tape that was never used
}

TEST_P(Autograd, SavedValuesOfLongChains) {
  const Tensor x = leaf({0.3, 0.7});
  Tensor y = x;
  for (int i = 0; i < 3000; ++i) y = sin(y) + 0.1 * y;
  sum(y).backward();
  double slope = 1, at = 0.3;
  for (int i = 0; i < 3000; ++i) slope *= std::cos(at) + 0.1, at = std::sin(at) + 0.1 * at;
  EXPECT_NEAR(values(x.grad())[0] / slope, 1, 1e-9);
}

TEST(AutogradTape, HoldsPendingValuesWeakly) {
  const Tensor x = full({10000}, 2, DType::f64).requires_grad(true);
  Tensor y = exp(x);
  Node* node = y.node();
  const std::uint32_t before = node->tape.load();
  const Tensor z = y * y;
  EXPECT_EQ(before, 1u);             // exp keeps its result
  EXPECT_EQ(node->tape.load(), 3u);  // and the product both operands
  y = Tensor();
  EXPECT_EQ(node->refs.load() >> 32, 0u);
  z.sync();
  EXPECT_TRUE(node->pending());  // only the tape can request it: recomputed if needed
  sum(z).backward();
  EXPECT_NEAR(values(x.grad())[1], 2 * std::exp(4.0), 1e-9);
}

TEST(AutogradTape, ValuesWorthKeepingAreKept) {
  const Tensor x = leaf({1, 2});
  Tensor y = sum(x, {}, true);
  Node* node = y.node();
  const Tensor z = y * y;
  y = Tensor();
  z.sync();
  EXPECT_FALSE(node->pending());
}

TEST(AutogradTape, AFailedPassAddsToNoLeaf) {
  const Tensor x = leaf({1, 2});
  const Tensor saved = exp(x);
  const Tensor y = sum(saved + x), z = sum(x * 3 + sin(saved));
  y.backward();
  EXPECT_TRUE(has_live_history(x * 2));
  EXPECT_FALSE(has_live_history(z));
  x.zero_grad();
  EXPECT_THROW(z.backward(), GradientError);
  EXPECT_FALSE(x.grad().defined());
}

TEST(AutogradTape, LeavesMayGoBeforeTheBackwardPass) {
  Tensor y;
  {
    const Tensor x = leaf({1, 2});
    y = sum(x * x);
  }
  y.backward();
}

TEST(AutogradTape, BackwardOpsCarryTheLineOfTheirCall) {
  const Tensor x = leaf({1, 2});
  const Tensor y = sum(exp(x));
  const unsigned line = __LINE__ - 1;
  const Tensor g = gradients(y, {x})[0];
  EXPECT_EQ(g.node()->where.line(), line);
}

TEST(AutogradTape, TwoThreadsAddToOneLeaf) {
  const Tensor x = leaf({1});
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) sum(x * 2).backward();
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_THAT(values(x.grad()), ElementsAre(800));
}

TEST_P(Autograd, ErrorSeveralElementsWithoutASeed) {
  const Tensor x = leaf({1, 2, 3});
  expect_error(__LINE__ + 1, "FM1711 GradientError: backward: a result of several elements needs a seed\n  y    f64[3]",
               "\n  hint reduce it to one element, or pass a seed of its shape", [&] { (x * 2).backward(); });
  expect_error(__LINE__ + 2, "FM1711 GradientError: backward: a result of several elements needs a seed\n  y    f64[3]",
               "\n  hint reduce it to one element, or pass a seed of its shape",
               [&] { grad([](const Tensor& t) { return t * 2; })(x); });
}

TEST_P(Autograd, ErrorLeafWrittenWhileRecording) {
  Tensor x = leaf({1, 2, 3});
  const std::string first =
      "FM1712 GradientError: in-place write to a leaf that requires a gradient, while gradients are recorded\n  x    "
      "f64[3]";
  const std::string last = "\n  hint write it under no_grad, or write to a copy of it";
  expect_error(__LINE__, first, last, [&] { x += 1; });
  expect_error(__LINE__, first, last, [&] { x[0].assign(1); });
  EXPECT_THAT(values(x), ElementsAre(1, 2, 3));
  no_grad([&] { x[0].assign(9); });
  EXPECT_THAT(values(x), ElementsAre(9, 2, 3));
}

TEST_P(Autograd, ErrorNoHistory) {
  const Tensor x = tensor({1.0}, DType::f64);
  const std::string last =
      "\n  hint call requires_grad(true) on the tensors that it is computed from, before computing it";
  expect_error(__LINE__ + 1, "FM1714 GradientError: backward: y has no history\n  y    f64[1]", last,
               [&] { x.backward(); });
  const Tensor y = leaf({1}) * 2;
  expect_error(__LINE__ + 1, "FM1714 GradientError: backward: xs[1] has no history\n  x    f64[1]", last, [&] {
    gradients(y, {y, x});
  });
}

TEST_P(Autograd, ErrorSeedDoesNotFit) {
  const Tensor y = leaf({1, 2}) * 2;
  const std::string first =
      "FM1715 GradientError: backward: the seed must be floating and have the shape of the result\n"
      "  y    f64[2]\n  seed ";
  expect_error(__LINE__, first + "f64[1]", "", [&] { y.backward(tensor({1.0}, DType::f64)); });
  expect_error(__LINE__, first + "i64[2]", "", [&] { y.backward(tensor({1, 1})); });
}

TEST_P(Autograd, ErrorMissingDerivative) {
  // No row of the table lacks a derivative, so the tape is told that one does.
  static constexpr VjpRule kNoRule{};
  const Tensor x = leaf({1, 2});
  const Tensor y = exp(x);
  const int line = __LINE__ - 1;
  grad_edge(y)->rule = &kNoRule;
  expect_error(line, "FM1716 GradientError: exp: has no derivative with respect to operand 0",
               "\n  hint detach() the operand if its gradient is not needed", [&] { sum(y).backward(); });
}

TEST_P(Autograd, ErrorRequiresGrad) {
  Tensor i = tensor({1, 2}), x = leaf({1, 2}), y = x * 2, base = tensor({1.0, 2.0}, DType::f64), view = base[0];
  expect_error(__LINE__ + 1, "FM1717 GradientError: requires_grad: i64 values have no gradients\n  x    i64[2]",
               "\n  hint cast it with astype() first", [&] { i.requires_grad(true); });
  const std::string computed = "the tensor is computed from others and has a history";
  expect_error(__LINE__ + 1, "FM1717 GradientError: requires_grad: " + computed + "\n  x    f64[2]",
               "\n  hint detach() returns the same value without its history", [&] { y.requires_grad(false); });
  expect_error(__LINE__ + 3,
               "FM1717 GradientError: requires_grad: a view has the gradient of its base\n"
               "  x    f64[]",
               "\n  hint mark the base of the view, or a copy of the view", [&] { view.requires_grad(true); });
  x.requires_grad(false);
  EXPECT_FALSE(x.requires_grad());
  EXPECT_FALSE((x * 2).requires_grad());
}

/// How many products the plans run on this thread have computed.
std::uint64_t products_of(const StepProfile& profile) {
  std::uint64_t runs = 0;
  for (const auto& [step, entry] : profile.entries())
    if (step.starts_with("matmul ")) runs += entry.runs;
  return runs;
}

TEST(Recomputation, ASyncBeforeTheBackwardPassRepeatsNoProduct) {
  const ModeGuard compiled(Mode::compiled);
  set_compile_policy(CompilePolicy::immediate);
  constexpr std::size_t kLayers = 4;
  std::vector<Tensor> weights, biases;
  for (std::size_t i = 0; i < kLayers; ++i) {
    weights.push_back(randn({16, 16}) * 0.3), biases.push_back(randn(16));
    weights.back().sync(), biases.back().sync();
    weights.back().requires_grad(true), biases.back().requires_grad(true);
  }
  Tensor x = randn({8, 16}).sync();
  const StepProfile profile;
  for (std::size_t i = 0; i < kLayers; ++i) x = x + gelu(linear(x, weights[i], biases[i]));
  const Tensor loss = sum(x * x);
  loss.sync();
  EXPECT_EQ(products_of(profile), kLayers);
  loss.backward();
  std::vector<Tensor> gradients;
  for (const Tensor& w : weights) gradients.push_back(w.grad());
  sync(gradients);
  EXPECT_EQ(products_of(profile), 3 * kLayers - 1);  // the first input has no gradient
  set_compile_policy(CompilePolicy::second_sight);
}

TEST_P(Autograd, TheGradientOfAWeightLiesAsTheWeightDoes) {
  const Tensor x = randn({5, 3}).sync();
  for (const Shape& rows : {Shape{5, 3}, Shape{2, 5, 3}}) {
    Tensor w = randn({4, 3});
    w.sync(), w.requires_grad(true);
    sum(square(linear(broadcast_to(x, rows), w))).backward();
    EXPECT_TRUE(w.grad().sync().node()->is_dense_leaf());
  }
}

}  // namespace
}  // namespace fermata
