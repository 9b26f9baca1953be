// Whole training steps inside compile(fn): zero_grad, forward, backward, update, in every order that programs have
// them.
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;

struct Net {
  Tensor w, b;
  std::vector<Tensor> parameters() const { return {w, b}; }
};
Net make_net() {
  manual_seed(3);
  Net net{randn({4, 3}).sync(), zeros({3}).sync()};
  net.w.requires_grad(true), net.b.requires_grad(true);
  return net;
}
Tensor loss_of(const Net& net, const Tensor& x, const Tensor& labels) {
  return cross_entropy(matmul(x, net.w) + net.b, labels);
}

/// How a program trains: losses of six calls, then the parameters and their gradients.
struct Outcome {
  Floats losses, w, b, grad;
  bool operator==(const Outcome&) const = default;
};
template <class Setup> Outcome train(bool compile_it, Mode mode, Setup setup, int calls = 6) {
  const ModeGuard guard(mode);
  const Net net = make_net();
  auto step = setup(net);
  auto compiled = compile([&](const Tensor& x, const Tensor& labels) { return step(x, labels); });
  manual_seed(11);
  const Tensor x = randn({8, 4}).sync(), labels = randint(0, 3, {8}).sync();
  Outcome out;
  for (int i = 0; i < calls; ++i)
    out.losses.push_back((compile_it ? compiled(x, labels) : step(x, labels)).template item<float>());
  out.w = net.w.to_vector<float>(), out.b = net.b.to_vector<float>();
  if (net.w.grad().defined()) out.grad = net.w.grad().to_vector<float>();
  return out;
}
template <class Setup> void expect_the_same(Setup setup) {
  const Outcome eager = train(false, Mode::eager, setup), recorded = train(false, Mode::compiled, setup),
                replayed = train(true, Mode::compiled, setup);
  EXPECT_NE(eager.losses.front(), eager.losses.back());
  EXPECT_EQ(recorded, eager);
  EXPECT_EQ(replayed, eager);
}

TEST(CompileTraining, ZeroGradForwardBackwardStep) {
  expect_the_same([](const Net& net) {
    auto sgd = std::make_shared<optim::SGD>(net.parameters(), optim::SgdOptions{.learning_rate = 0.5});
    return [=](const Tensor& x, const Tensor& labels) {
      sgd->zero_grad();
      const Tensor loss = loss_of(net, x, labels);
      loss.backward();
      sgd->step();
      return loss;
    };
  });
}

TEST(CompileTraining, ZeroGradAtTheEnd) {
  expect_the_same([](const Net& net) {
    auto adam = std::make_shared<optim::AdamW>(net.parameters(), optim::AdamOptions{.learning_rate = 0.1});
    return [=](const Tensor& x, const Tensor& labels) {
      const Tensor loss = loss_of(net, x, labels);
      loss.backward();
      adam->step();
      adam->zero_grad();
      return loss.detach();
    };
  });
}

TEST(CompileTraining, GradientsOfSeveralCallsAddUp) {
  expect_the_same([](const Net& net) {
    return [=](const Tensor& x, const Tensor& labels) {
      const Tensor loss = loss_of(net, x * (net.w.grad().defined() ? 1.5 : 1), labels);
      loss.backward();
      return loss.detach() + sum(net.w.grad());
    };
  });
}

TEST(CompileTraining, GradientsAreReadAndClearedOutside) {
  for (const bool compile_it : {false, true}) {
    const ModeGuard mode(Mode::compiled);
    const Net net = make_net();
    auto backward = compile([&](const Tensor& x) { sum(square(matmul(x, net.w)) + net.b).backward(); });
    const auto run = [&](const Tensor& x) {
      if (compile_it)
        backward(x);
      else
        sum(square(matmul(x, net.w)) + net.b).backward();
    };
    const Tensor x = ones({2, 4});
    run(x);
    const Floats once = net.w.grad().to_vector<float>();
    run(x), run(x), run(x);
    EXPECT_EQ(net.b.grad().to_vector<float>(), (Floats{8, 8, 8}));
    net.w.zero_grad();
    run(x);
    EXPECT_EQ(net.w.grad().to_vector<float>(), once);
    EXPECT_EQ(net.b.grad().to_vector<float>(), (Floats{10, 10, 10}));
    const Tensor held = net.b.grad();
    net.b.zero_grad();
    run(x), run(x);
    EXPECT_EQ(held.to_vector<float>(), (Floats{10, 10, 10}));
    EXPECT_EQ(net.b.grad().to_vector<float>(), (Floats{4, 4, 4}));
    net.b.grad().assign(0);
    run(x);
    EXPECT_EQ(net.b.grad().to_vector<float>(), (Floats{2, 2, 2}));
    if (compile_it) { EXPECT_LE(backward.captures(), 4u); }
  }
}

TEST(CompileTraining, LeavesMayBeArguments) {
  for (const bool compile_it : {false, true}) {
    const ModeGuard mode(Mode::compiled);
    auto compiled = compile([](const Tensor& x, const Tensor& w) {
      const Tensor y = sum(square(x * w));
      y.backward();
      return y.detach();
    });
    const auto run = [&](const Tensor& x, const Tensor& w) {
      if (compile_it) return compiled(x, w);
      const Tensor y = sum(square(x * w));
      y.backward();
      return y.detach();
    };
    const Tensor x = tensor({1.0f, 2.0f});
    Tensor w = tensor({3.0f, 1.0f}), v = tensor({1.0f, 1.0f});
    w.requires_grad(true), v.requires_grad(true);
    EXPECT_EQ(run(x, w).item<float>(), 13);
    EXPECT_EQ(run(x, v).item<float>(), 5);
    EXPECT_EQ(w.grad().to_vector<float>(), (Floats{6, 8}));
    for (int i = 0; i < 3; ++i) run(x, w);
    EXPECT_EQ(w.grad().to_vector<float>(), (Floats{24, 32}));
    EXPECT_EQ(v.grad().to_vector<float>(), (Floats{2, 8}));
    w.zero_grad();
    run(x, w);
    EXPECT_EQ(w.grad().to_vector<float>(), (Floats{6, 8}));
  }
}

TEST(CompileTraining, AnArgumentMayBeATensorFromOutside) {
  for (const bool compile_it : {false, true}) {
    const ModeGuard mode(Mode::compiled);
    Tensor w = tensor({3.0f});
    w.requires_grad(true);
    optim::SGD sgd({w}, {.learning_rate = 0.125});
    const auto step = [&](const Tensor& weight) {
      sgd.zero_grad();
      const Tensor y = sum(square(weight));
      y.backward();
      sgd.step();
      return y.detach();
    };
    auto compiled = compile(step);
    Floats seen;
    for (int i = 0; i < 3; ++i) seen.push_back((compile_it ? compiled(w) : step(w)).item<float>());
    EXPECT_EQ(seen, (Floats{9, 5.0625f, 2.84765625f}));
  }
}

TEST(CompileTraining, GradientsThatAreTheSameValue) {
  for (const bool compile_it : {false, true}) {
    const ModeGuard mode(Mode::compiled);
    Tensor a = tensor({1.0f}), b = tensor({2.0f});
    a.requires_grad(true), b.requires_grad(true);
    const auto add = [&](const Tensor& x) { sum((a + b) * x).backward(); };
    auto compiled = compile(add);
    const auto run = [&](float value) { compile_it ? compiled(tensor({value})) : add(tensor({value})); };
    run(2), run(3), run(4);
    EXPECT_EQ(a.grad().item<float>(), 9);
    b.grad().assign(100);
    run(1), run(1), run(1);
    EXPECT_EQ(a.grad().item<float>(), 12);
    EXPECT_EQ(b.grad().item<float>(), 103);
  }
}

TEST(CompileTraining, LeavesThatTheFunctionMakesAreItsOwn) {
  const ModeGuard mode(Mode::compiled);
  auto slope = compile([](const Tensor& x) {
    Tensor own = copy(x);
    Tensor w = tensor({2.0f});
    w.requires_grad(true);
    sum(w * own * own).backward();
    return w.grad();
  });
  for (float value = 1; value < 5; ++value) EXPECT_EQ(slope(tensor({value})).item<float>(), value * value);
  EXPECT_EQ(slope.captures(), 1u);
}

TEST(CompileTraining, MarkingAnArgumentRunsTheFunction) {
  const ModeGuard mode(Mode::compiled);
  auto marks = compile([](Tensor x) {
    x.requires_grad(true);
    return x * 1;
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = tensor({1.0f});
    marks(x);
    EXPECT_TRUE(x.requires_grad());
  }
}

TEST(CompileTraining, AFailureLeavesGradientsAsTheyWere) {
  const ModeGuard mode(Mode::compiled);
  Tensor w = tensor({2.0f});
  w.requires_grad(true);
  bool fail = true;
  auto f = compile([&](const Tensor& x) {
    w.zero_grad();
    sum(w * x).backward();
    if (fail) static_cast<void>(x + ones({7, 9}));
  });
  sum(w * 5).backward();
  EXPECT_THROW(f(tensor({1.0f, 1.0f})), ShapeError);
  EXPECT_EQ(w.grad().item<float>(), 5);
  fail = false;
  f(tensor({1.0f, 1.0f}));
  EXPECT_EQ(w.grad().item<float>(), 2);
}

}  // namespace
}  // namespace fermata
