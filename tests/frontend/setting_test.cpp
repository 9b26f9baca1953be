// Settings: numbers that compiled functions read at every call, and the options of optimizers, which are made of them.
#include "fermata/setting.h"

#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;
using testing::message;

TEST(Settings, AreNumbers) {
  Setting rate = 0.5, copy = rate;
  rate *= 4;
  EXPECT_EQ(rate, 2.0);
  EXPECT_EQ(copy, 0.5);
  copy = rate;
  EXPECT_EQ(copy - 1, 1.0);
  rate = 3;
  EXPECT_EQ(copy, 2.0);
  EXPECT_EQ(rate.tensor().item<double>(), 3);
  rate = 4.5;
  EXPECT_EQ(rate.tensor().item<double>(), 4.5);
  EXPECT_FALSE(Setting(0));
}

TEST(Settings, AreReadAtEveryReplay) {
  for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::c64}) {
    Setting rate = 0.1;
    const auto fn = [&](const Tensor& x) {
      return std::vector<Tensor>{x * rate, 1 / (rate + x), x - rate, rate - x, rate / x};
    };
    auto compiled = compile(fn);
    const Tensor x = astype(tensor({1.0f, 3.0f, 7.0f}), t).sync();
    for (int i = 0; i < 5; ++i) {
      const ModeGuard replayed(Mode::compiled);
      const std::vector<Tensor> got = compiled(x);
      const ModeGuard eager(Mode::eager);
      const std::vector<Tensor> want = fn(x);
      for (std::size_t k = 0; k < want.size(); ++k) {
        EXPECT_EQ(got[k].dtype(), want[k].dtype());
        EXPECT_EQ(got[k].to_vector<std::complex<double>>(), want[k].to_vector<std::complex<double>>())
            << name(t) << " " << k;
      }
      rate *= 1.7;
    }
    EXPECT_EQ(compiled.captures(), 1u);
  }
}

TEST(Settings, ThatAreAskedForTheirValueArePartOfTheKey) {
  const ModeGuard mode(Mode::compiled);
  Setting power = 2;
  auto f = compile([&](const Tensor& x) { return power > 2.5 ? x * x * x : pow(x, static_cast<double>(power)); });
  const Tensor x = tensor({3.0f});
  for (int round = 0; round < 3; ++round) {
    power = 2;
    EXPECT_EQ(f(x).item<float>(), 9);
    power = 3;
    EXPECT_EQ(f(x).item<float>(), 27);
    power = 1;
    EXPECT_EQ(f(x).item<float>(), 3);
  }
  EXPECT_EQ(f.captures(), 3u);
  Setting scale = 0;
  auto g = compile([&](const Tensor& v) { return scale ? v * scale : v; });
  for (const float s : {0.0f, 2.0f, 3.0f, 0.0f, 4.0f}) {
    scale = s;
    EXPECT_EQ(g(x).item<float>(), s == 0 ? 3 : 3 * s);
  }
  EXPECT_EQ(g.captures(), 2u);
}

TEST(Settings, InsideControlFlow) {
  const ModeGuard mode(Mode::compiled);
  Setting rate = 2;
  auto f = compile([&](const Tensor& x) {
    return fori_loop(
        0, 3, [&](const Tensor&, const Tensor& v) { return v * rate; }, x);
  });
  for (const float r : {2.0f, 3.0f, 4.0f, 2.0f}) {
    rate = r;
    EXPECT_EQ(f(tensor({1.0f})).item<float>(), r * r * r);
  }
  EXPECT_EQ(f.captures(), 1u);
}

TEST(Settings, AreNotSetInside) {
  const ModeGuard mode(Mode::compiled);
  Setting rate = 2;
  auto f = compile([&](const Tensor& x) {
    rate = 3;  // line
    return x * rate;
  });
  EXPECT_EQ(message<UserError>([&] { f(tensor({1.0f})); }),
            "FM1703 UserError: a Setting is assigned inside a function that is being compiled\n  at   "
            "frontend/setting_test.cpp:" +
                std::to_string(__LINE__ - 6) +
                "\n"
                "  hint set it before or after the call, or keep the number in a tensor");
  EXPECT_EQ(rate, 2.0);
}

TEST(Settings, MayEndBeforeTheFunctionThatReadsThem) {
  const ModeGuard mode(Mode::compiled);
  auto rate = std::make_unique<Setting>(2);
  const Setting* now = rate.get();
  auto f = compile([&](const Tensor& x) { return x * *now; });
  EXPECT_EQ(f(tensor({1.0f})).item<float>(), 2);
  EXPECT_EQ(f(tensor({1.0f})).item<float>(), 2);
  rate.reset();
  EXPECT_EQ(f(tensor({1.0f})).item<float>(), 2);
}

// ---- Options of optimizers
// ----------------------------------------------------------------------------------------------

/// Trains with everything about the options changing from call to call.
template <class Optimizer, class Options, class Change>
Floats trained(bool compile_it, Mode mode, const Options& options, Change change, std::size_t* captures = nullptr) {
  const ModeGuard guard(mode);
  manual_seed(3);
  Tensor w = randn({4, 3}).sync(), b = zeros({3}).sync();
  w.requires_grad(true), b.requires_grad(true);
  Optimizer optimizer({w, b}, options);
  const auto step = [&](const Tensor& x, const Tensor& labels) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(matmul(x, w) + b, labels);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  auto compiled = compile(step);
  const Tensor x = randn({8, 4}).sync(), labels = randint(0, 3, {8}).sync();
  Floats out;
  for (int i = 0; i < 12; ++i) {
    change(optimizer.options, i);
    out.push_back((compile_it ? compiled(x, labels) : step(x, labels)).template item<float>());
  }
  for (const float v : w.to_vector<float>()) out.push_back(v);
  if (captures != nullptr) *captures = compiled.captures();
  return out;
}
template <class Optimizer, class Options, class Change>
std::size_t expect_the_same(const Options& options, Change change) {
  std::size_t captures = 0;
  const Floats eager = trained<Optimizer>(false, Mode::eager, options, change);
  EXPECT_EQ(trained<Optimizer>(false, Mode::compiled, options, change), eager);
  EXPECT_EQ(trained<Optimizer>(true, Mode::compiled, options, change, &captures), eager);
  return captures;
}

TEST(OptimizerOptions, ASchedule) {
  const auto schedule = [](auto& options, int i) { options.learning_rate = 0.5 / (1 + i); };
  EXPECT_LE(expect_the_same<optim::SGD>(optim::SgdOptions{}, schedule), 2u);
  EXPECT_LE(expect_the_same<optim::SGD>(optim::SgdOptions{.momentum = 0.9, .nesterov = true}, schedule), 2u);
  EXPECT_LE(expect_the_same<optim::Adam>(optim::AdamOptions{}, schedule), 2u);
  EXPECT_LE(expect_the_same<optim::AdamW>(optim::AdamOptions{.weight_decay = 0.1}, schedule), 2u);
}

TEST(OptimizerOptions, EveryOneOfThem) {
  EXPECT_LE(expect_the_same<optim::SGD>(
                optim::SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
                [](optim::SgdOptions& o, int i) {
                  o.momentum = 0.5 + 0.04 * i, o.dampening = 0.3 / (1 + i), o.weight_decay = 0.01 * (i + 1);
                }),
            2u);
  EXPECT_LE(expect_the_same<optim::AdamW>(optim::AdamOptions{},
                                          [](optim::AdamOptions& o, int i) {
                                            o.weight_decay = 0.01 * (i + 1), o.beta1 = 0.5 + 0.03 * i,
                                            o.beta2 = 0.9 + 0.005 * i, o.eps = 1e-8 * (i + 1),
                                            o.learning_rate = 0.1 / (i + 1);
                                          }),
            2u);
}

TEST(OptimizerOptions, ThatChangeTheFormula) {
  expect_the_same<optim::SGD>(optim::SgdOptions{.learning_rate = 0.1}, [](optim::SgdOptions& o, int i) {
    o.momentum = i % 4 < 2 ? 0 : 0.9, o.weight_decay = i % 3 == 0 ? 0 : 0.1, o.maximize = i > 8,
    o.nesterov = i % 5 == 4, o.dampening = i % 2 == 0 ? 0.0 : 0.25;
  });
  expect_the_same<optim::Adam>(optim::AdamOptions{.learning_rate = 0.1}, [](optim::AdamOptions& o, int i) {
    o.weight_decay = i % 3 == 0 ? 0 : 0.1, o.maximize = i > 8;
  });
}

TEST(OptimizerOptions, OfNarrowParameters) {
  for (const Mode m : {Mode::eager, Mode::compiled}) {
    const ModeGuard mode(m);
    Tensor x = full({3}, 2, DType::bf16);
    optim::Adam adam({x}, {.learning_rate = 0.1});
    auto step = compile([&](const Tensor& target) { adam.step(std::vector{(x - target) * 2}); });
    for (int i = 0; i < 5; ++i) {
      adam.options.learning_rate = 0.3 / (1 + i);
      step(full({3}, 0.5, DType::bf16));
    }
    static Floats first;
    if (first.empty()) first = x.to_vector<float>();
    EXPECT_EQ(x.to_vector<float>(), first);
    EXPECT_NE(first[0], 2);
  }
}

}  // namespace
}  // namespace fermata
