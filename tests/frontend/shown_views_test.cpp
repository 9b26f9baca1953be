// Views of computed values show their buffers: a sync of one computes the value and copies nothing (runtime/walk.h).
#include <fermata/fermata.h>
#include <fermata/inspect.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

namespace fermata {
namespace {

using View = std::function<Tensor(const Tensor&)>;

/// Of a matrix with 6 rows and 10 columns, as are their results where another one follows.
std::vector<View> views() {
  return {
      [](const Tensor& x) { return reshape(x, {-1}); },
      [](const Tensor& x) { return x.mT(); },
      [](const Tensor& x) { return slice(x, 0, 1, 5, 2); },
      [](const Tensor& x) { return slice(x, -1, 1, 4); },
      [](const Tensor& x) { return flip(x, {0}); },
      [](const Tensor& x) { return expand_dims(x, 1); },
      [](const Tensor& x) { return select(x, 0, 2); },
      [](const Tensor& x) {
        return broadcast_to(expand_dims(x, 0), {3, x.size(0), x.size(1)});
      },
      [](const Tensor& x) {
        return flip(reshape(x.mT(), {x.size(1), x.size(0)}), {1});
      },
      [](const Tensor& x) {
        return reshape(slice(x, 0, 0, 4), {2, 2, -1});
      },
      [](const Tensor& x) { return slice(reshape(x, {-1}), 0, 3, 50, 3); },
  };
}
std::vector<View> values() {
  return {
      [](const Tensor& x) { return sort(x); },
      [](const Tensor& x) { return x * 2 + 1; },
      [](const Tensor& x) { return matmul(x, x.mT()); },
      [](const Tensor& x) {
        return concat({x, x}, 1);
      },
      [](const Tensor& x) { return cumulative_sum(x, 0); },
  };
}
Tensor start() { return reshape(cos(arange(60).astype(DType::f32) * 1.7), {6, 10}).sync(); }

TEST(ShownViews, HaveNoStepsOfTheirOwn) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = start();
  for (const View& value : values())
    for (const View& view : views()) {
      const Tensor y = view(value(x));
      const std::string text = explain(y);
      EXPECT_EQ(text.find("copy"), std::string::npos) << text;
    }
}

TEST(ShownViews, HaveTheElementsOfEagerMode) {
  const Tensor x = start();
  for (const View& value : values())
    for (const View& view : views()) {
      const auto run = [&](Mode mode, bool base_first) {
        const ModeGuard guard(mode);
        const Tensor base = value(x), y = view(base), z = view(base) * 1;
        if (base_first) sync({base});
        sync({y, z});
        EXPECT_TRUE(all(y == z).item<bool>());
        return y.to_vector<float>();
      };
      const auto expected = run(Mode::eager, false);
      for (const bool base_first : {false, true}) EXPECT_EQ(run(Mode::compiled, base_first), expected);
    }
}

TEST(ShownViews, AndTheirBasesSeeEachOthersWrites) {
  const ModeGuard compiled(Mode::compiled);
  for (const bool pending : {true, false}) {
    const Tensor x = start();
    Tensor base = sort(x), rows = slice(base, 0, 2, 4), flat = reshape(base, {-1});
    const Tensor before = base + 0;
    if (!pending) sync({rows, flat});
    rows += 100;
    EXPECT_EQ(select(flat, 0, 25).item<float>(), select(select(before, 0, 2), 0, 5).item<float>() + 100);
    if (!pending) sync({flat});
    base *= 0;
    EXPECT_EQ(sum(abs(rows)).item<float>() + sum(abs(flat)).item<float>(), 0);
    EXPECT_NE(sum(abs(before)).item<float>(), 0);
  }
}

/// A leaf that nobody else refers to is written over by a result; one that a view shows is not.
TEST(ShownViews, KeepTheBufferThatTheyShow) {
  const ModeGuard compiled(Mode::compiled);
  for (int round = 0; round < 4; ++round) {
    Tensor base = arange(5000).astype(DType::f32) * 1;
    Tensor tail = slice(base, 0, 4000, 5000);
    sync({base});
    base = base * 0 - 1;  // the old value is only in the view now
    sync({base, tail});
    EXPECT_EQ(select(tail, 0, 3).item<float>(), 4003);
    EXPECT_EQ(sum(base).item<float>(), -5000);
  }
}

TEST(ShownViews, AreTheSameForAllThreads) {
  for (int round = 0; round < 60; ++round) {
    const Tensor x = start();
    const ModeGuard compiled(Mode::compiled);
    const Tensor base = sort(x), flat = reshape(base, {-1}), turned = base.mT(), part = slice(turned, 0, 2, 7);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const Tensor* const wanted[] = {&base, &flat, &turned, &part};
        sync({*wanted[(t + round) % 4], *wanted[t]});
        if (!all(reshape(turned.mT(), {-1}) == flat).item<bool>()) ++wrong;
        if (!all(part == slice(base.mT(), 0, 2, 7)).item<bool>()) ++wrong;
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace fermata
