// compile(fn): replays do what the function does, whatever it touches.
#include "fermata/compile.h"

#include <gtest/gtest.h>

#include <string>

#include "fermata/fermata.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& x) { return x.to_vector<float>(); }

class Compile : public ::testing::Test {
 protected:
  ModeGuard mode_{Mode::compiled};
};

/// As in a release build: the second call is checked, and no other.
class CheckedOnce {
 public:
  CheckedOnce() : before_(set_check_replay(false)) {}
  ~CheckedOnce() { set_check_replay(before_); }

 private:
  bool before_;
};

TEST_F(Compile, ReplaysGiveWhatEagerGives) {
  const auto fn = [](const Tensor& x, const Tensor& y) { return softmax(gelu(x * 2 + 1) + y, -1); };
  const auto compiled = compile(fn);
  const CheckedOnce once;
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({6, 33}).sync(), y = randn({33}).sync();
    const std::uint64_t replays = stats().replays, records = stats().records;
    const Tensor got = compiled(x, y);
    EXPECT_FALSE(got.pending());
    EXPECT_EQ(stats().replays, replays + (i > 0 ? 1 : 0));
    if (i > 1) { EXPECT_EQ(stats().records, records); }  // the second call compares
    const ModeGuard eager(Mode::eager);
    EXPECT_EQ(floats(got), floats(fn(x, y)));
  }
  EXPECT_EQ(compiled.captures(), 1u);
}

TEST_F(Compile, NewSizesAndNumbersRecordAgainAndCompileNothing) {
  auto compiled = compile([](const Tensor& x, double factor) { return sum(x * factor + 1, 0); });
  const Tensor four = ones({4, 2}).sync(), three = ones({3, 2}).sync();
  EXPECT_EQ(floats(compiled(four, 2.0)), (Floats{12, 12}));
  const Stats before = stats();
  EXPECT_EQ(floats(compiled(three, 2.0)), (Floats{9, 9}));
  EXPECT_EQ(floats(compiled(four, -1.0)), (Floats{0, 0}));
  EXPECT_EQ(floats(compiled(four, 2.0)), (Floats{12, 12}));
  EXPECT_EQ(compiled.captures(), 3u);
  EXPECT_EQ(stats().kernels_compiled, before.kernels_compiled);
  EXPECT_EQ(stats().plans_compiled, before.plans_compiled);
}

TEST_F(Compile, TellsDTypesAndStridesApart) {
  auto compiled = compile([](const Tensor& x) { return x + x; });
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_EQ(floats(compiled(x)), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(floats(compiled(transpose(x))), (Floats{2, 6, 4, 8}));
  EXPECT_EQ(floats(compiled(x[1])), (Floats{6, 8}));
  EXPECT_EQ(floats(compiled(flip(x[1]))), (Floats{8, 6}));
  EXPECT_EQ(compiled(astype(x, DType::i8)).dtype(), DType::i8);
  EXPECT_EQ(floats(compiled(x)), (Floats{2, 4, 6, 8}));
}

TEST_F(Compile, SizesMayDecideWhatIsRecorded) {
  auto compiled = compile([](const Tensor& x) { return x.size(0) > 2 ? x * 10 : -x; });
  EXPECT_EQ(floats(compiled(ones({2}))), (Floats{-1, -1}));
  EXPECT_EQ(floats(compiled(ones({3}))), (Floats{10, 10, 10}));
  EXPECT_EQ(floats(compiled(ones({2}))), (Floats{-1, -1}));
}

TEST_F(Compile, EmptyAndScalarTensorsAreOrdinary) {
  auto compiled = compile([](const Tensor& x) { return std::pair(x * 2, sum(x)); });
  const auto [none, zero] = compiled(zeros({0, 3}));
  EXPECT_EQ(none.shape(), (Shape{0, 3}));
  EXPECT_EQ(zero.item<float>(), 0);
  const auto [four, two] = compiled(full({}, 2.0));
  EXPECT_EQ(four.item<float>(), 4);
  EXPECT_EQ(two.item<float>(), 2);
}

TEST_F(Compile, ResultsComeInEveryForm) {
  const Tensor x = tensor({1.0, 2.0});
  auto pair = compile([](const Tensor& t) { return std::pair(t + 1, t * 2); });
  auto tuple = compile([](const Tensor& t) { return std::tuple(t, t + 1, t + 1); });
  auto vector = compile([](const Tensor& t) { return std::vector<Tensor>{t - 1, t[0]}; });
  auto array = compile([](const Tensor& t) { return std::array<Tensor, 2>{full({2}, 5.0), -t}; });
  for (int i = 0; i < 2; ++i) {
    const auto [a, b] = pair(x);
    EXPECT_EQ(floats(a), (Floats{2, 3}));
    EXPECT_EQ(floats(b), (Floats{2, 4}));
    const auto [same, c, d] = tuple(x);
    EXPECT_EQ(floats(same), (Floats{1, 2}));
    EXPECT_EQ(floats(c), (Floats{2, 3}));
    EXPECT_EQ(floats(d), (Floats{2, 3}));
    const std::vector<Tensor> list = vector(x);
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(floats(list[0]), (Floats{0, 1}));
    EXPECT_EQ(floats(list[1]), (Floats{1}));
    const std::array<Tensor, 2> both = array(x);
    EXPECT_EQ(floats(both[0]), (Floats{5, 5}));
    EXPECT_EQ(floats(both[1]), (Floats{-1, -2}));
  }
}

TEST_F(Compile, ResultsOfOneCallOutliveTheNext) {
  auto compiled = compile([](const Tensor& x) { return x + 1; });
  const Tensor first = compiled(tensor({1.0})), second = compiled(tensor({5.0}));
  EXPECT_EQ(floats(first), (Floats{2}));
  EXPECT_EQ(floats(second), (Floats{6}));
}

TEST_F(Compile, PendingArgumentsAreComputedFirst) {
  auto compiled = compile([](const Tensor& x) { return x * 2; });
  const Tensor x = tensor({1.0, 2.0}) + 1;
  ASSERT_TRUE(x.pending());
  EXPECT_EQ(floats(compiled(x)), (Floats{4, 6}));
  EXPECT_EQ(floats(compiled(x - 1)), (Floats{2, 4}));
}

// ---- Hidden inputs and writes ---------------------------------------------------------------------------------------

TEST_F(Compile, HiddenInputsHaveTheirPresentValue) {
  Tensor weight = tensor({2.0, 3.0});
  auto compiled = compile([&](const Tensor& x) { return x * weight; });
  EXPECT_EQ(floats(compiled(tensor({1.0, 1.0}))), (Floats{2, 3}));
  weight += 10;  // pending when the replay begins
  EXPECT_EQ(floats(compiled(tensor({1.0, 1.0}))), (Floats{12, 13}));
  weight[1].assign(0);
  EXPECT_EQ(floats(compiled(tensor({2.0, 2.0}))), (Floats{24, 0}));
  EXPECT_EQ(compiled.captures(), 1u);
}

TEST_F(Compile, ViewsAndGradientsOfInputsHaveTheirPresentValue) {
  Tensor w = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}});
  auto views = compile([&](const Tensor& x) { return std::tuple(x[0] + 1, sum(transpose(x) * w.mT(), 0), w[1]); });
  auto slopes = compile([&](const Tensor& x) {
    const Tensor by_x = grad([&](const Tensor& v) { return sum(matmul(v, w)); })(x);
    const Tensor by_w = grad([&](const Tensor& v) { return sum(v * v * x); })(w);
    return std::tuple(by_x, by_w, w.detach() * x);
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}) * (i + 1);
    const auto [first, product, row] = views(x);
    EXPECT_EQ(first.to_vector<float>(), (x[0] + 1).to_vector<float>());
    EXPECT_EQ(product.to_vector<float>(), sum(x * w, 1).to_vector<float>());
    EXPECT_EQ(row.to_vector<float>(), w[1].to_vector<float>());
    const auto [by_x, by_w, detached] = slopes(x);
    EXPECT_EQ(by_x.to_vector<float>(), broadcast_to(sum(w, 1), {2, 2}).to_vector<float>());
    EXPECT_EQ(by_w.to_vector<float>(), (w * x * 2).to_vector<float>());
    EXPECT_EQ(detached.to_vector<float>(), (w * x).to_vector<float>());
    w += 10;
  }
}

TEST_F(Compile, WritesAreWrittenBack) {
  Tensor total = zeros({2}), calls = zeros({}, DType::i64);
  const Tensor alias = total[1];
  auto add = compile([&](const Tensor& x) {
    total += x;
    calls += 1;
  });
  for (int i = 1; i <= 5; ++i) {
    add(tensor({1.0, 10.0}));
    EXPECT_EQ(calls.item<int>(), i);
  }
  EXPECT_EQ(floats(total), (Floats{5, 50}));
  EXPECT_EQ(floats(alias), (Floats{50}));
  total.assign(0);
  add(tensor({1.0, 10.0}));
  EXPECT_EQ(floats(alias), (Floats{10}));
}

TEST_F(Compile, WritesToArgumentsReachTheCaller) {
  auto scale = compile([](Tensor x, const Tensor& by) {
    x *= by;
    return x + 1;
  });
  Tensor x = tensor({1.0, 2.0}), other = tensor({5.0, 5.0});
  const Tensor two = full({}, 2.0);
  EXPECT_EQ(floats(scale(x, two)), (Floats{3, 5}));
  EXPECT_EQ(floats(x), (Floats{2, 4}));
  EXPECT_EQ(floats(scale(x, two)), (Floats{5, 9}));
  EXPECT_EQ(floats(x), (Floats{4, 8}));
  EXPECT_EQ(floats(scale(other, two)), (Floats{11, 11}));
  EXPECT_EQ(floats(other), (Floats{10, 10}));
  EXPECT_EQ(floats(x), (Floats{4, 8}));
}

TEST_F(Compile, WritesThroughViewsReachTheirBase) {
  Tensor state = zeros({2, 3});
  auto compiled = compile([&](const Tensor& x) {
    Tensor row = state[1];
    row += x;
    return sum(state);
  });
  EXPECT_EQ(compiled(ones({3})).item<float>(), 3);
  EXPECT_EQ(compiled(ones({3})).item<float>(), 6);
  EXPECT_EQ(floats(state), (Floats{0, 0, 0, 2, 2, 2}));
}

TEST_F(Compile, ReadersBeforeAndAfterAWriteSeeTheirValues) {
  Tensor state = tensor({1.0});
  auto compiled = compile([&] {
    const Tensor before = state * 10;
    state += 1;
    return std::pair(before, state * 10);
  });
  for (float i = 1; i < 4; ++i) {
    const auto [before, after] = compiled();
    EXPECT_EQ(before.item<float>(), 10 * i);
    EXPECT_EQ(after.item<float>(), 10 * i + 10);
    EXPECT_EQ(state.item<float>(), i + 1);
  }
}

// ---- Random numbers and gradients -----------------------------------------------------------------------------------

TEST_F(Compile, RandomNumbersAreThoseOfTheFunctionItself) {
  const auto fn = [](const Tensor& x) {
    const Tensor noise = uniform({3});
    return x + noise * 2 + normal({3});
  };
  auto compiled = compile(fn);
  const Tensor x = tensor({1.0, 2.0, 3.0});
  std::vector<Floats> want, got;
  std::uint64_t end = 0;
  {
    const ModeGuard eager(Mode::eager);
    manual_seed(5);
    for (int i = 0; i < 4; ++i) want.push_back(floats(fn(x)));
    end = default_generator().offset();
  }
  manual_seed(5);
  for (int i = 0; i < 4; ++i) got.push_back(floats(compiled(x)));
  EXPECT_EQ(got, want);
  EXPECT_EQ(default_generator().offset(), end);
  EXPECT_NE(got[0], got[1]);
  manual_seed(6);  // another key is another argument
  const Floats other = floats(compiled(x));
  EXPECT_NE(other, want[0]);
  const ModeGuard eager(Mode::eager);
  manual_seed(6);
  EXPECT_EQ(other, floats(fn(x)));
}

TEST_F(Compile, NumbersThatNothingNeedsAreDrawnToo) {
  auto compiled = compile([](const Tensor& x) {
    static_cast<void>(uniform({8}));
    return x + 1;
  });
  manual_seed(5);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    compiled(tensor({1.0f}));
    EXPECT_EQ(default_generator().offset(), 8 * i);
  }
}

TEST_F(Compile, ATrainingStepLearnsAsItDoesEagerly) {
  const auto train = [](bool compile_it, Mode mode) {
    const ModeGuard guard(mode);
    manual_seed(3);
    Tensor w = randn({4, 3}).sync(), b = zeros({3}).sync();
    w.requires_grad(true), b.requires_grad(true);
    const auto step = [&](const Tensor& x, const Tensor& labels) {
      const Tensor loss = cross_entropy(matmul(x, w) + b, labels);
      loss.backward();
      const NoGradGuard no_grad;
      w -= w.grad() * 0.5, b -= b.grad() * 0.5;
      w.zero_grad(), b.zero_grad();
      return loss;
    };
    auto compiled = compile(step);
    Floats losses;
    const Tensor x = randn({8, 4}).sync(), labels = randint(0, 3, {8}).sync();
    for (int i = 0; i < 6; ++i) losses.push_back((compile_it ? compiled(x, labels) : step(x, labels)).item<float>());
    return losses;
  };
  const Floats want = train(false, Mode::eager), recorded = train(false, Mode::compiled),
               replayed = train(true, Mode::compiled);
  EXPECT_LT(want.back(), want.front());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(recorded[i], want[i], 1e-5);
    EXPECT_NEAR(replayed[i], want[i], 1e-5);
  }
}

// ---- Errors ---------------------------------------------------------------------------------------------------------

TEST_F(Compile, ReadingAValueInsideIsAnErrorAtThatLine) {
  Tensor state = tensor({1.0});
  auto compiled = compile([&](const Tensor& x) {
    state += 1;
    return (x + 1).item<float>() > 0 ? x * 2 : x;  // line
  });
  const int line = __LINE__ - 2;
  for (int i = 0; i < 2; ++i) {
    try {
      compiled(tensor({1.0}));
      FAIL();
    } catch (const UserError& error) {
      EXPECT_EQ(
          std::string(error.what()),
          "FM1701 UserError: a value is read inside a function that is being compiled\n  at   frontend/compile_test.cpp:" +
              std::to_string(line) +
              "\n  hint return the tensor and read it outside, or keep this part out of compile()");
    }
    EXPECT_EQ(floats(state), (Floats{1}));  // as if it had not been called
  }
  EXPECT_EQ(floats(tensor({1.0}) + 1), (Floats{2}));
}

TEST_F(Compile, AnExceptionInsideUndoesWrites) {
  Tensor state = tensor({1.0, 2.0});
  bool fail = true;
  auto compiled = compile([&](const Tensor& x) {
    state *= 2;
    if (fail) static_cast<void>(x + ones({7}));
    return state + x;
  });
  EXPECT_THROW(compiled(tensor({1.0, 1.0})), ShapeError);
  EXPECT_EQ(floats(state), (Floats{1, 2}));
  EXPECT_EQ(compiled.captures(), 0u);
  fail = false;
  EXPECT_EQ(floats(compiled(tensor({1.0, 1.0}))), (Floats{3, 5}));
  EXPECT_EQ(floats(state), (Floats{2, 4}));
}

TEST_F(Compile, ErrorsThatDependOnDataLeaveItUsable) {
  Tensor calls = zeros({});
  auto compiled = compile([&](const Tensor& x, const Tensor& index) {
    calls += 1;
    return take(x, index) * 2;
  });
  const Tensor x = tensor({1.0, 2.0});
  EXPECT_EQ(floats(compiled(x, tensor({1}))), (Floats{4}));
  EXPECT_THROW(compiled(x, tensor({9})), IndexError);
  EXPECT_EQ(calls.item<float>(), 1);
  EXPECT_EQ(floats(compiled(x, tensor({0}))), (Floats{2}));
  EXPECT_EQ(calls.item<float>(), 2);
}

// ---- Structure ------------------------------------------------------------------------------------------------------

TEST_F(Compile, CompiledFunctionsNest) {
  auto inner = compile([](const Tensor& x) { return exp(x) + 1; });
  auto outer = compile([&](const Tensor& x) { return inner(x) * inner(x * 0); });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(floats(outer(zeros({2}))), (Floats{4, 4}));
  EXPECT_EQ(floats(inner(zeros({1}))), (Floats{2}));
}

TEST_F(Compile, EagerThreadsRunTheFunction) {
  auto compiled = compile([](const Tensor& x) { return x.item<float>() > 0 ? x : -x; });
  const ModeGuard eager(Mode::eager);
  EXPECT_EQ(compiled(full({}, -3.0)).item<float>(), 3);
  EXPECT_EQ(compiled.captures(), 0u);
}

TEST_F(Compile, OldSignaturesAreForgotten) {
  auto compiled = compile([](const Tensor& x, int n) { return x * n; });
  const Tensor x = tensor({2.0});
  for (int round = 0; round < 2; ++round)
    for (int n = 0; n < 200; ++n) ASSERT_EQ(compiled(x, n).item<float>(), 2.0f * static_cast<float>(n));
  EXPECT_LE(compiled.captures(), 64u);
}

TEST_F(Compile, LongFunctionsAreNotCut) {
  auto compiled = compile([](Tensor x) {
    for (int i = 0; i < 1500; ++i) x = x + 1;
    return x;
  });
  for (float i = 0; i < 2; ++i) EXPECT_EQ(compiled(full({2}, i)).to_vector<float>(), Floats(2, 1500 + i));
}

TEST_F(Compile, ResultsWithAHistoryAreDifferentiable) {
  auto compiled = compile([](const Tensor& a) { return a * a; });
  for (float value = 2; value < 5; ++value) {
    Tensor w = tensor({value});
    w.requires_grad(true);
    sum(compiled(w) * 3).backward();
    EXPECT_EQ(w.grad().item<float>(), 6 * value);
  }
  const NoGradGuard no_grad;  // another signature: this one is replayed
  Tensor w = tensor({3.0f});
  w.requires_grad(true);
  EXPECT_EQ(compiled(w).item<float>(), 9);
}

TEST_F(Compile, GradientsAreAddedToLeavesOutside) {
  Tensor w = tensor({1.0f});
  w.requires_grad(true);
  auto adds = compile([&](const Tensor& x) {
    const Tensor y = sum(w * x);
    y.backward();
    return y.detach();
  });
  float total = 0;
  for (float value = 1; value < 6; ++value) {
    EXPECT_EQ(adds(tensor({value})).item<float>(), value);
    EXPECT_EQ(w.grad().item<float>(), total += value);
  }
  EXPECT_EQ(adds.captures(), 2u);  // with and without a gradient to add to
  auto functional = compile([&](const Tensor& x) { return gradients(sum(w * x), {w})[0]; });
  for (float value = 1; value < 4; ++value) EXPECT_EQ(functional(tensor({value})).item<float>(), value);
}

TEST_F(Compile, ViewsOfArgumentsAreFollowed) {
  const Tensor hidden = tensor({{1.0, 2.0}, {3.0, 4.0}});
  auto row = compile([](const Tensor& x) { return x[0]; });
  auto scaled = compile([&](const Tensor& x) { return transpose(x)[1] * 2 + hidden[1]; });
  for (float value = 0; value < 3; ++value) {
    const Tensor x = tensor({{value, 5.0f}, {7.0f, value}});
    EXPECT_EQ(row(x).to_vector<float>(), (std::vector{value, 5.0f}));
    EXPECT_EQ(scaled(x).to_vector<float>(), (std::vector{13.0f, 4 + 2 * value}));
  }
}

TEST_F(Compile, OneArgumentMayComeTwice) {
  auto compiled = compile([](Tensor x, const Tensor& y) {
    x += 1;
    return x * y;
  });
  Tensor a = tensor({2.0}), b = tensor({5.0});
  EXPECT_EQ(compiled(a, b).item<float>(), 15);
  Tensor c = tensor({2.0});
  const float aliased = compiled(c, c).item<float>();
  EXPECT_EQ(aliased, 9);  // as it is eagerly: y is x
  EXPECT_EQ(c.item<float>(), 3);
}

}  // namespace
}  // namespace fermata
