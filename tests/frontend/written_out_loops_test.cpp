// Loops that are written out, call by call: whatever they are made of, they settle on a few structures.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "fermata/fermata.h"

namespace fermata {
namespace {

using Body = std::function<float(int)>;

class WrittenOutLoops : public ::testing::Test {
 protected:
  ~WrittenOutLoops() override { set_compile_policy(policy_); }

  /// Structures met by `rounds` rounds of the loop, and by the same number once more. Each is one plan, were it
  /// compiled.
  static std::pair<std::uint64_t, std::uint64_t> structures_of(const Body& body, int rounds = 8) {
    clear_compile_caches();
    std::vector<std::uint64_t> misses{stats().plan_misses};
    for (int part = 0; part < 2; ++part) {
      for (int i = 0; i < rounds; ++i) body(part * rounds + i);
      misses.push_back(stats().plan_misses);
    }
    return {misses[1] - misses[0], misses[2] - misses[1]};
  }

  /// Fits the parameters of x += rate f(x) to where it should arrive, by gradients through all its steps.
  using Field = std::function<Tensor(const Tensor& x, const std::vector<Tensor>& parameters)>;
  static Body fit(const Field& f, std::vector<Tensor> parameters, const Tensor& start, int steps = 200) {
    for (Tensor& p : parameters) {
      p.sync();
      p.requires_grad(true);
    }
    start.sync();
    return [=](int) mutable {
      Tensor x = start;
      for (int i = 0; i < steps; ++i) x = x + 0.01 * f(x, parameters);
      const Tensor loss = sum(square(x - 2));
      const std::vector<Tensor> gradient = gradients(loss, parameters);
      for (std::size_t k = 0; k < parameters.size(); ++k) {
        parameters[k] = (parameters[k] - 1e-4 * gradient[k]).detach();
        parameters[k].requires_grad(true);
      }
      return loss.item<float>();
    };
  }
  static void expect_settled(const char* name, const Body& body) {
    const auto [first, later] = structures_of(body);
    EXPECT_LE(first, 40u) << name;  // two fits to find the places, and what comes of the third
    EXPECT_EQ(later, 0u) << name;
  }

  CompilePolicy policy_ = set_compile_policy(CompilePolicy::never);
  ModeGuard mode_{Mode::compiled};
};

using Values = std::vector<Tensor>;

TEST_F(WrittenOutLoops, FitsOfPointwiseSteps) {
  expect_settled("two parameters", fit([](const Tensor& x, const Values& p) { return tanh(x * p[0] + p[1]); },
                                       {full({8}, 0.5), full({8}, 0.1)}, ones({8})));
  expect_settled("parameters of one element",
                 fit([](const Tensor& x, const Values& p) { return x * p[0] - square(x) * p[1]; },
                     {full({}, 0.5), full({}, 0.1)}, ones({20})));
  expect_settled("a start that is computed", fit([](const Tensor& x, const Values& p) { return sin(x) * p[0]; },
                                                 {full({8}, 0.5)}, arange(8, DType::f32) * 0.1, 333));
}

TEST_F(WrittenOutLoops, FitsOfProductsAndReductions) {
  expect_settled("product", fit([](const Tensor& x, const Values& p) { return tanh(matmul(x, p[0])) - x; },
                                {full({6, 6}, 0.05)}, ones({4, 6})));
  expect_settled("mean", fit([](const Tensor& x, const Values& p) { return p[0] * (x - mean(x, 0, true)); },
                             {full({12}, 0.5)}, arange(12, DType::f32) * 0.1));
}

TEST_F(WrittenOutLoops, FitsByBackward) {
  Tensor w = full({16}, 0.5).sync();
  w.requires_grad(true);
  const Tensor start = ones({16}).sync();
  expect_settled("backward()", [&](int) {
    Tensor x = start;
    for (int i = 0; i < 200; ++i) x = x + 0.01 * (sin(x) * w);
    const Tensor loss = sum(x * x);
    loss.backward();
    const NoGradGuard quiet;
    w -= 1e-4 * w.grad();
    w.zero_grad();
    return loss.item<float>();
  });
}

TEST_F(WrittenOutLoops, SimulationsThatAreReadNowAndThen) {
  for (const int turns : {1000, 777}) {
    Tensor x = ones({16}).sync(), v = zeros({16}).sync();
    expect_settled("one value", [&](int) {
      for (int k = 0; k < turns; ++k) x = x + 0.01 * (sin(x) - x);
      return sum(x).item<float>();
    });
    expect_settled("bodies that alternate", [&](int) {
      for (int k = 0; k < turns; ++k) {
        if (k % 2 == 0)
          x = x + 0.01 * sin(x);
        else
          x = x * 0.99 - 0.001 * square(x);
      }
      return sum(x).item<float>();
    });
    expect_settled("two values", [&](int) {
      for (int k = 0; k < turns; ++k) {
        v = v - 0.01 * sin(x);
        x = x + 0.01 * v;
      }
      return sum(x).item<float>();
    });
  }
}

TEST_F(WrittenOutLoops, CompiledPlansAreAHandful) {
  set_compile_policy(CompilePolicy::second_sight);
  const auto make = [] {
    return fit([](const Tensor& x, const Values& p) { return tanh(x * p[0]) - x; }, {full({8}, 0.5)}, ones({8}));
  };
  clear_compile_caches();
  const std::uint64_t before = stats().plans_compiled;
  const Body compiled = make();
  std::vector<float> losses, wanted;
  for (int i = 0; i < 6; ++i) losses.push_back(compiled(i));
  EXPECT_LE(stats().plans_compiled, before + 16);  // it was above 100
  const std::uint64_t settled = stats().plans_compiled;
  for (int i = 0; i < 6; ++i) losses.push_back(compiled(i));
  EXPECT_EQ(stats().plans_compiled, settled);
  const ModeGuard guard(Mode::eager);
  const Body eager = make();
  for (int i = 0; i < 12; ++i) wanted.push_back(eager(i));
  EXPECT_EQ(losses, wanted);
}

TEST_F(WrittenOutLoops, SmallStructuresAreCompiledInTheBackground) {
  set_compile_policy(CompilePolicy::background);
  clear_compile_caches();
  const Tensor x = tensor({1.0f, 4.0f});
  const auto value = [&] {  // more calls than are made without asking for a plan
    Tensor y = sqrt(x) + 3;
    for (int i = 0; i < 10; ++i) y = (y + 1) * 1;
    return (y - 10).to_vector<float>();
  };
  const std::uint64_t plans = stats().plans_compiled, plays = stats().call_plays;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(value(), (std::vector<float>{4, 5}));
  wait_for_compiling();
  EXPECT_EQ(stats().plans_compiled, plans);  // so little work does not pay for a plan
  EXPECT_EQ(stats().call_plays, plays + 3);
  for (int i = 0; i < 100'000; ++i) value();
  wait_for_compiling();
  EXPECT_EQ(stats().plans_compiled, plans + 1);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(value(), (std::vector<float>{4, 5}));  // by the plan, or op by op: whichever is shorter
}

}  // namespace
}  // namespace fermata
