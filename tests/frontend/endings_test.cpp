// What destructors compute when a thread or the process ends: after objects of the engine that belong to the thread.
#include <fermata/fermata.h>
#include <fermata/modules.h>
#include <fermata/profile.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "dispatch/library.h"

namespace fermata {
namespace {

FERMATA_LIBRARY(endings, m) {
  m.pointwise<DTypeRule::numeric>(
      "twice", [](auto x) { return x + x; }, "x + x");
}

/// Products and convolutions that libraries compute where there are any.
bool computes_with_libraries() {
  bool good = true;
  for (const Mode mode : {Mode::compiled, Mode::eager}) {
    const ModeGuard guard(mode);
    for (const DType t : {DType::f32, DType::bf16, DType::i8}) {
      const Tensor x = ones({130, 100}, t), y = ones({100, 120}, t);
      good = good && sum(astype(matmul(x, y), DType::f64)).item<double>() == 130.0 * 120 * 100;
    }
    const Tensor images = ones({1, 8, 12, 12}), weights = ones({8, 8, 3, 3});
    good = good && sum(conv2d(images, weights)).item<double>() == 8 * 100 * 72;
    Tensor leaf = ones({8, 8, 3, 3}).sync();
    leaf.requires_grad(true);
    sum(conv2d(images, leaf)).backward();
    good = good && leaf.grad().to_vector<float>()[0] == 100;
  }
  return good;
}

/// Uses all that keeps something for each thread.
bool computes(const Tensor& pending) {
  bool good = true;
  for (const Mode mode : {Mode::compiled, Mode::eager}) {
    const ModeGuard guard(mode);
    good = good && sum(pending).item<double>() == 6;
    for (int i = 0; i < 3; ++i) good = good && sum(ones({40, 40 + i}) * 2 + i).item<double>() > 0;
    good = good && sum(matmul(ones({3, 3}), ones({3, 3}))).item<double>() == 27;
    const auto twice = OperatorHandle::find("endings::twice").typed<Tensor(const Operand&)>();
    good = good && twice(tensor({1.0, 2.0})).to_vector<float>() == (std::vector<float>{2, 4});
    good = good && grad([](const Tensor& x) { return sum(x * x); })(full({2}, 3.0)).to_vector<float>()[1] == 6;
    const auto mapped = vmap([](const Tensor& x) { return sum(x); });
    good = good && mapped(ones({2, 3})).to_vector<float>()[1] == 3;
    const AutocastGuard half(DType::bf16);
    const nn::Linear layer(2, 2);
    good = good && layer.forward(zeros({1, 2})).shape() == Shape({1, 2});
  }
  const auto f = compile([](const Tensor& x) { return x * 3; });
  for (int i = 0; i < 3; ++i) good = good && f(full({2}, i)).to_vector<float>()[0] == 3 * static_cast<float>(i);
  const Profile profile;
  good = good && (ones({5}) + 1).to_vector<float>()[4] == 2;
  return good && !stats().sync_reasons.empty();
}

struct AtTheEnd {
  ~AtTheEnd() {
    good = computes(pending);
    if (in_process && !good) _exit(1);
  }
  Tensor pending;
  bool in_process = false;
  static inline std::atomic<bool> good{false};
};

TEST(Endings, StaticObjectsComputeAfterTheMainThreadsObjectsHaveGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(120);
        static AtTheEnd at_the_end;
        at_the_end.in_process = true;
        if (!computes(ones({6}))) std::exit(2);
        at_the_end.pending = ones({6}) * 1;
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

struct UsesLibrariesAtTheEnd {
  ~UsesLibrariesAtTheEnd() {
    if (!computes_with_libraries()) _exit(1);
  }
};

/// oneDNN destroys static objects of its own, which are older or younger than those of the program.
TEST(Endings, StaticObjectsUseLibraries) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool is_first : {true, false}) {
    const auto end = [&] {
      alarm(120);
      if (!is_first && !computes_with_libraries()) std::exit(2);
      static UsesLibrariesAtTheEnd at_the_end;
      if (is_first && !computes_with_libraries()) std::exit(2);
      std::exit(0);
    };
    EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "") << is_first;
  }
}

TEST(Endings, ObjectsOfAThreadThatWereThereFirstComputeWhenItEnds) {
  AtTheEnd::good = false;
  std::thread([] {
    static thread_local AtTheEnd at_the_end;  // before all that the engine has for the thread, so it goes after that
    at_the_end.pending = ones({6}) * 1;
    EXPECT_TRUE(computes(ones({6})));
  }).join();
  EXPECT_TRUE(AtTheEnd::good);
}

}  // namespace
}  // namespace fermata
