// Optimizers against their formulas in plain C++, in both modes, and how many plans a step takes.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Doubles = std::vector<double>;

class Optimizers : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Optimizers, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Doubles values(const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); }

/// Steps of an optimizer of one parameter with the gradient x * x + step, next to `wanted` on each element.
template <class State, class F> void follow(optim::Optimizer& optimizer, const Tensor& parameter, F&& wanted) {
  Doubles x = values(parameter);
  std::vector<State> states(x.size());
  for (int step = 1; step <= 5; ++step) {
    const Tensor gradient = square(parameter) + step;
    optimizer.step(std::vector{gradient});
    for (std::size_t i = 0; i < x.size(); ++i) wanted(x[i], x[i] * x[i] + step, states[i], step);
    const Doubles found = values(parameter);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(found[i], x[i], 1e-12) << "step " << step;
  }
}

TEST_P(Optimizers, SgdFollowsItsFormula) {
  struct Velocity {
    double v = 0;
  };
  for (const bool nesterov : {false, true}) {
    const optim::SgdOptions o{.learning_rate = 0.01,
                              .momentum = 0.9,
                              .dampening = nesterov ? 0.0 : 0.2,
                              .weight_decay = 0.1,
                              .nesterov = nesterov};
    const Tensor x = random_f64({3, 2}, 0.5, 1, true, 1);
    optim::SGD sgd({x}, o);
    follow<Velocity>(sgd, x, [&](double& p, double g, Velocity& s, int step) {
      g += 0.1 * p;
      s.v = step == 1 ? g : 0.9 * s.v + (1 - o.dampening) * g;
      p -= 0.01 * (nesterov ? g + 0.9 * s.v : s.v);
    });
  }
  const Tensor x = random_f64({3}, 0.5, 1, true, 1);
  optim::SGD plain({x}, {.learning_rate = 0.1, .maximize = true});
  follow<Velocity>(plain, x, [](double& p, double g, Velocity&, int) { p += 0.1 * g; });
  EXPECT_TRUE(plain.state().empty());
}

/// A run that is interrupted before its first step or after some, and goes on with another object, is the same run.
TEST_P(Optimizers, SgdGoesOnFromItsState) {
  for (const double dampening : {0.0, 0.5})
    for (const int before : {0, 1, 3}) {
      const optim::SgdOptions options{.learning_rate = 0.1, .momentum = 0.9, .dampening = dampening};
      const auto step = [](optim::SGD& sgd, const Tensor& x, int i) {
        sgd.step(std::vector<Tensor>{x.detach() * 0.5 + i});
      };
      const Tensor whole = full({3}, 2, DType::f64).requires_grad_(), parts = full({3}, 2, DType::f64).requires_grad_();
      optim::SGD unbroken({whole}, options), first({parts}, options), second({parts}, options);
      for (int i = 0; i < 6; ++i) step(unbroken, whole, i);
      for (int i = 0; i < before; ++i) step(first, parts, i);
      const std::vector<Tensor> kept = first.state(), place = second.state();
      ASSERT_EQ(kept.size(), dampening == 0 ? 1u : 2u);
      ASSERT_EQ(place.size(), kept.size());
      for (std::size_t i = 0; i < kept.size(); ++i) place[i].assign(kept[i]);
      for (int i = before; i < 6; ++i) step(second, parts, i);
      EXPECT_EQ(parts.to_vector<double>(), whole.to_vector<double>()) << dampening << " " << before;
    }
}

struct Moments {
  double m = 0, v = 0;
};
double adam_step(double g, Moments& s, int step, double rate) {
  s.m = 0.8 * s.m + 0.2 * g, s.v = 0.95 * s.v + 0.05 * g * g;
  return rate * (s.m / (1 - std::pow(0.8, step))) / (std::sqrt(s.v / (1 - std::pow(0.95, step))) + 1e-8);
}

TEST_P(Optimizers, AdamFollowsItsFormula) {
  const optim::AdamOptions o{.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};
  const Tensor x = random_f64({3, 2}, 0.5, 1, true, 1), y = copy(x);
  optim::Adam adam({x}, o);
  follow<Moments>(adam, x,
                  [](double& p, double g, Moments& s, int step) { p -= adam_step(g + 0.1 * p, s, step, 0.02); });
  optim::AdamW decoupled({y}, o);
  follow<Moments>(decoupled, y, [](double& p, double g, Moments& s, int step) {
    p -= 0.02 * 0.1 * p;
    p -= adam_step(g, s, step, 0.02);
  });
  EXPECT_EQ(optim::AdamW({y}).options.weight_decay, 0.01);
}

TEST_P(Optimizers, ParametersAreLeavesThatAreWrittenInPlace) {
  Tensor w = tensor({3.0f, -2.0f}).requires_grad(true), b = tensor({1.0f}).requires_grad(true),
         unused = ones({2}).requires_grad(true);
  const Tensor alias = w;
  optim::Adam adam({w, b, unused}, {.learning_rate = 0.1});
  float first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    adam.zero_grad();
    const Tensor loss = sum(square(w)) + sum(square(b - 0.5f));
    loss.backward();
    adam.step();
    (i == 0 ? first : last) = loss.item<float>();
  }
  EXPECT_LT(last, first / 50);
  EXPECT_EQ(alias.to_vector<float>(), w.to_vector<float>());
  EXPECT_EQ(unused.to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_TRUE(w.requires_grad());
}

TEST_P(Optimizers, NarrowParametersAreUpdatedInFloats) {
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = full({2}, 1, t);
    optim::AdamW adam({x}, {.learning_rate = 0.5, .weight_decay = 0});
    adam.step(std::vector{full({2}, 3, t)});
    EXPECT_EQ(x.dtype(), t);
    EXPECT_NEAR(values(x)[0], 0.5, 1e-6);
    EXPECT_EQ(adam.state()[1].dtype(), compute_dtype(t));
  }
}

TEST_P(Optimizers, GradientsAreClippedTogether) {
  std::vector<Tensor> g{tensor({3.0f, 0.0f}), Tensor(), tensor({{4.0f}})};
  EXPECT_EQ(optim::clip_grad_norm(g, 1).item<float>(), 5);
  EXPECT_NEAR(values(g[0])[0], 0.6, 1e-6);
  EXPECT_NEAR(values(g[2])[0], 0.8, 1e-6);
  EXPECT_FALSE(g[1].defined());
  EXPECT_NEAR(optim::clip_grad_norm(g, 10, INFINITY).item<float>(), 0.8, 1e-6);
  EXPECT_NEAR(values(g[2])[0], 0.8, 1e-6);
  EXPECT_NEAR(optim::clip_grad_norm(g, 10, 1).item<float>(), 1.4, 1e-6);
  optim::clip_grad_value(g, 0.7);
  EXPECT_NEAR(values(g[2])[0], 0.7, 1e-6);
}

TEST_P(Optimizers, ErrorsSayWhatDoesNotFit) {
  const Tensor x = ones({2});
  optim::SGD sgd({x});
  EXPECT_EQ(message<Error>([&] {
              sgd.step(std::vector{x, x});
            }),
            "FM1378 ValueError: step: 2 gradients for 1 parameters\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { sgd.step(std::vector{ones({3})}); }),
            "FM1080 ShapeError: step: the shape of a gradient does not match its parameter\n"
            "  parameter f32[2]\n  gradient  f32[3]\n  at        HERE");
  EXPECT_EQ(message<Error>([&] { optim::SGD({x}, {.nesterov = true}); }),
            "FM1377 ValueError: SGD: nesterov requires momentum and no dampening\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { optim::Adam({zeros({2}, DType::i32)}); }),
            "FM1101 DTypeError: optimizer: does not take i32\n  parameter i32[2]\n  at        HERE");
  sgd.step(std::vector{ones({2})});
  EXPECT_NEAR(values(x)[0], 0.999, 1e-6);
}

TEST(OptimizersCompiled, AStepIsOnePlanWithAKernelForEachParameter) {
  const ModeGuard compiled(Mode::compiled);
  std::vector<Tensor> parameters, gradients;
  for (int i = 0; i < 8; ++i) parameters.push_back(randn({i + 2, 5})), gradients.push_back(randn({i + 2, 5}));
  sync(parameters), sync(gradients);
  optim::AdamW adam(parameters);
  for (int i = 0; i < 3; ++i) adam.step(gradients);
  const Stats before = stats();
  adam.step(gradients);
  const Stats after = stats();
  EXPECT_EQ(after.syncs - before.syncs, 1u);
  EXPECT_EQ(after.kernels_compiled, before.kernels_compiled);
}

TEST(OptimizersCompiled, CompiledFunctionsCountTheirSteps) {
  const ModeGuard compiled(Mode::compiled);
  const auto train = [](bool replayed) {
    Tensor x = full({3}, 2, DType::f64);
    optim::Adam adam({x}, {.learning_rate = 0.1});
    auto step = compile([&](const Tensor& target) {
      const std::vector<Tensor> g{(x - target) * 2};
      adam.step(g);
      return sum(square(x));
    });
    Doubles seen;
    for (int i = 0; i < 6; ++i) {
      const Tensor target = full({3}, 0.5, DType::f64);
      if (replayed)
        seen.push_back(step(target).item<double>());
      else
        adam.step(std::vector{(x - target) * 2}), seen.push_back(sum(square(x)).item<double>());
    }
    return seen;
  };
  EXPECT_EQ(train(true), train(false));
}

}  // namespace
}  // namespace fermata
