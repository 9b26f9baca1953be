// Operators that say what their calls do: effects happen once each and in order, and draws are the same, in every way
// to run.
#include <fermata/library.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "ir/custom_op.h"
#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

using Kind = Library::Kind;
using testing::ElementsAre;

Tensor values(std::initializer_list<float> numbers) {
  const Tensor t = tensor(std::vector<float>(numbers));
  t.sync();
  return t;
}

std::vector<int> log_of_effects;

class Effects : public testing::Test {
 protected:
  Effects() {
    def_.def("log(Tensor x, int number) -> Tensor").def("tell(Tensor x, int number) -> ()");
    def_.def("random noise(Tensor x) -> Tensor").def("untagged_noise(Tensor x) -> Tensor");
    cpu_.impl("log", [](const Tensor& x, std::int64_t number) {
      log_of_effects.push_back(static_cast<int>(number));
      return x + number;
    });
    cpu_.impl("tell", [](const Tensor&, std::int64_t number) { log_of_effects.push_back(static_cast<int>(number)); });
    for (const char* name : {"noise", "untagged_noise"}) {
      cpu_.impl(name, [](const Tensor& x) { return randn(IntegerList(x.shape())); });
      meta_.impl(name, [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
    }
    meta_.impl("log", [](const Tensor& x, std::int64_t) { return meta_tensor({x.dtype(), x.shape()}); });
  }
  static Tensor log(const Tensor& x, int number) {
    return OperatorHandle::find("fx::log").typed<Tensor(const Tensor&, std::int64_t)>()(x, number);
  }
  static void tell(const Tensor& x, int number) {
    OperatorHandle::find("fx::tell").typed<void(const Tensor&, std::int64_t)>()(x, number);
  }
  static Tensor noise(const Tensor& x, const char* name = "fx::noise") {
    return OperatorHandle::find(name).typed<Tensor(const Tensor&)>()(x);
  }
  Library def_{Kind::definition, "fx"}, cpu_{Kind::implementation, "fx", "CPU"},
      meta_{Kind::implementation, "fx", "Meta"};
};

TEST_F(Effects, HappenOnceEachInTheOrderOfTheProgram) {
  const Tensor x = values({1});
  const auto program = [=] {
    log(x, 1);  // never read
    const Tensor a = log(x, 2), b = log(x, 2);
    tell(x, 3);
    const Tensor c = log(b, 4);
    return std::vector{c, a};
  };
  {
    const ModeGuard eager(Mode::eager);
    log_of_effects.clear();
    EXPECT_EQ(numbers_of(program()), (Numbers{7, 3}));
    EXPECT_THAT(log_of_effects, ElementsAre(1, 2, 2, 3, 4));
  }
  for (int sight = 0; sight < 3; ++sight) {
    log_of_effects.clear();
    EXPECT_EQ(numbers_of(program()), (Numbers{7, 3})) << sight;
    EXPECT_THAT(log_of_effects, ElementsAre(1, 2, 2, 3, 4)) << sight;
  }
  auto compiled = compile([&] { return program(); });
  for (int call = 0; call < 3; ++call) {
    log_of_effects.clear();
    EXPECT_EQ(numbers_of(compiled()), (Numbers{7, 3})) << call;
    EXPECT_THAT(log_of_effects, ElementsAre(1, 2, 2, 3, 4)) << call;
  }
}

TEST_F(Effects, HappenBeforeTheModeChangesAndWhereAThreadEnds) {
  const Tensor x = values({1});
  log_of_effects.clear();
  log(x, 1);
  {
    const ModeGuard eager(Mode::eager);
    log(x, 2);
  }
  std::thread([&] { log(x, 3); }).join();
  EXPECT_THAT(log_of_effects, ElementsAre(1, 2, 3));
}

TEST_F(Effects, OfAFunctionAreNotThoseOfWhatItsCaptureComputes) {
  const Tensor x = values({1}), pending = values({2}) * 3;
  log_of_effects.clear();
  auto captured = compile([&](const Tensor& t) {
    const Tensor y = log(t, 1);
    return y * pending;  // computed while the function is captured
  });
  EXPECT_TRUE(log_of_effects.empty());
  for (int call = 1; call <= 3; ++call) {
    EXPECT_EQ(captured(x).item<float>(), 12);
    EXPECT_EQ(log_of_effects.size(), static_cast<std::size_t>(call));
  }
}

TEST_F(Effects, ThatThreadsLeaveHaveAPlayerOfTheirOwn) {
  // A thread that records an effect before its first sync, and leaves one, while others come and go.
  log_of_effects.clear();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  static std::atomic<int> told{0};
  told = 0;
  Library counting(Kind::definition, "counting"), cpu(Kind::implementation, "counting", "CPU"),
      meta(Kind::implementation, "counting", "Meta");
  counting.def("count(Tensor x) -> Tensor");
  cpu.impl("count", [](const Tensor& x) {
    ++told;
    return x + 1;
  });
  meta.impl("count", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto count = OperatorHandle::find("counting::count").typed<Tensor(const Tensor&)>();
  const Tensor x = values({1, 2});
  for (int i = 0; i < 64; ++i)
    threads.emplace_back([&] {
      const Tensor first = count(x);
      wrong += (first * 2).to_vector<float>()[1] != 6;
      count(x * 3);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(told, 128);
}

TEST_F(Effects, OfALongChainKeepTheirOrderAndTheKeysOfTheirCalls) {
  Library chain(Kind::definition, "chain"), cpu(Kind::implementation, "chain", "CPU"),
      meta(Kind::implementation, "chain", "Meta");
  chain.def("step(Tensor x) -> Tensor");
  cpu.impl("step",
           [](const Tensor& x) { return x + (thread_keys.included.has(Functionality::user2) ? 1.0f : 100.0f); });
  meta.impl("step", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  const auto step = OperatorHandle::find("chain::step").typed<Tensor(const Tensor&)>();
  Tensor x = values({0});
  {
    const KeyGuard on(Functionality::user2, {});
    for (int i = 0; i < 3000; ++i) x = step(x);  // longer than the bound on pending calls
  }
  EXPECT_EQ(x.item<float>(), 3000);
}

TEST_F(Effects, OfABackwardPassAreNotRepeated) {
  Tensor w = values({1});
  w.requires_grad(true);
  log_of_effects.clear();
  const Tensor y = w * log(values({2}), 5);
  sum(y * y).backward();
  EXPECT_THAT(w.grad().to_vector<float>(), ElementsAre(98));
  EXPECT_THAT(log_of_effects, ElementsAre(5));
}

/// Looking at a function, to see what its gradient needs, does not make its calls.
TEST_F(Effects, OfADifferentiatedBranchHappenOnce) {
  const Tensor flag = full({}, true), x = full({1}, 2).sync();  // no gradient goes through it
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    Tensor w = values({3});
    w.requires_grad(true);
    log_of_effects.clear();
    const Tensor y = cond(
        flag, [](const Tensor& a, const Tensor& b) { return a * log(b, 6); },
        [](const Tensor& a, const Tensor&) { return a; }, w, x);
    EXPECT_EQ(y.item<float>(), 24);
    EXPECT_THAT(log_of_effects, ElementsAre(6));
  }
}

TEST_F(Effects, DrawsAreTheSameInEveryMode) {
  const Tensor x = full({3}, 1.0f).sync();
  for (const char* name : {"fx::noise", "fx::untagged_noise"}) {
    const auto program = [=] {
      manual_seed(42);
      const Tensor a = noise(x, name), b = randn({3}), c = noise(x, name);
      return std::vector{a, b, c};
    };
    // A function that seeds cannot be captured once, so the generator is seeded outside of it.
    const auto results = in_every_way(program);
    for (const auto& [way, numbers] : results) {
      if (way.find("replay") != way.npos || way == "compile(fn)") continue;
      EXPECT_EQ(numbers, results[0].second) << name << ", " << way;
    }
    const Numbers& eager = results[0].second;
    EXPECT_NE(eager[0], eager[6]) << "two calls are not merged";
    auto drawn = compile([=] { return std::vector{noise(x, name), randn({3}), noise(x, name)}; });
    for (int call = 0; call < 3; ++call) {
      manual_seed(42);
      EXPECT_EQ(numbers_of(drawn()), eager) << name << ", call " << call;
    }
  }
}

TEST_F(Effects, ABackwardPassSeesTheNumbersOfTheForwardPass) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    Tensor w = full({4}, 1.0);
    w.requires_grad(true);
    const Tensor mask = noise(w.detach());
    sum(w * mask).backward();
    EXPECT_EQ(w.grad().to_vector<float>(), mask.to_vector<float>());
  }
}

TEST_F(Effects, SchemasSayThem) {
  EXPECT_EQ(to_string(OperatorHandle::find("fx::noise").schema()), "random fx::noise(Tensor x) -> Tensor");
  EXPECT_EQ(effect_of(OperatorHandle::find("fx::noise").entry().op), Effect::random);
  EXPECT_EQ(effect_of(OperatorHandle::find("fx::log").entry().op), Effect::effect);
  EXPECT_EQ(parse_schema("pure a::b(Tensor x) -> Tensor").effect, Effect::pure);
  EXPECT_EQ(parse_schema("pure(Tensor x) -> Tensor").name, "pure");
}

}  // namespace
}  // namespace fermata
