// compile(fn) objects are shared by threads: replays run side by side, and nothing is held over a run or a recording.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fermata/fermata.h"
#include "fermata/library.h"

namespace fermata {
namespace {

template <class F> void on_threads(int count, F&& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&f, i] {
      const ModeGuard mode(Mode::compiled);
      f(i);
    });
  for (std::thread& t : threads) t.join();
}

/// A kernel that waits until `wanted` calls of it are running.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, wanted = 0;
  bool all_came = true;
  void enter() {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    all_came = changed.wait_for(lock, std::chrono::seconds(60), [&] { return inside >= wanted; }) && all_came;
  }
};
Meeting* meeting = nullptr;
FunctionRef<void()>* inner_call = nullptr;

Tensor copied(const Tensor& x) {
  const Elements from(x);
  const Tensor out = empty(x.shape(), DType::f32);
  std::copy_n(from.data<float>(), from.count(), elements_to_fill<float>(out));
  return out;
}

FERMATA_LIBRARY(concurrency_test, m) {
  m.def("meet(Tensor x) -> Tensor");
  m.def("call_inside(Tensor x) -> Tensor");
}
FERMATA_LIBRARY_IMPL(concurrency_test, CPU, m) {
  m.impl("meet", [](const Tensor& x) {
    if (meeting != nullptr) meeting->enter();
    return copied(x);
  });
  m.impl("call_inside", [](const Tensor& x) {
    if (inner_call != nullptr) (*inner_call)();
    return copied(x);
  });
}
FERMATA_LIBRARY_IMPL(concurrency_test, Meta, m) {
  m.impl("meet", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  m.impl("call_inside", [](const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
}
Tensor meet(const Tensor& x) {
  static const auto op = OperatorHandle::find("concurrency_test::meet").typed<Tensor(const Tensor&)>();
  return op(x);
}
Tensor call_inside(const Tensor& x) {
  static const auto op = OperatorHandle::find("concurrency_test::call_inside").typed<Tensor(const Tensor&)>();
  return op(x);
}

TEST(CompileConcurrency, OneCallIsReplayedByManyThreadsAtOnce) {
  const ModeGuard mode(Mode::compiled);
  auto f = compile([](const Tensor& x, const Tensor& y) {
    return softmax(matmul(x, y) * 2 + 1, -1) + rand({4, 1}) * 0;
  });
  const Tensor y = randn({3, 5}).sync();
  f(ones({4, 3}), y), f(ones({4, 3}), y);
  std::atomic<int> wrong{0};
  on_threads(8, [&](int thread) {
    const Tensor x = full({4, 3}, static_cast<float>(thread)).sync();
    const std::vector<float> want = softmax(matmul(x, y) * 2 + 1, -1).to_vector<float>();
    for (int i = 0; i < 300; ++i) wrong += f(x, y).to_vector<float>() != want;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(f.captures(), 1u);
}

TEST(CompileConcurrency, ThreadsThatMeetInsideARunAreNoDeadlock) {
  const ModeGuard mode(Mode::compiled);
  auto f = compile([](const Tensor& x) { return meet(x + 1) * 2; });
  f(ones({2})), f(ones({2}));
  Meeting three;
  three.wanted = 3, meeting = &three;
  std::atomic<int> right{0};
  on_threads(3, [&](int thread) {
    right += f(full({2}, static_cast<float>(thread))).to_vector<float>()[1] == 2.0f * static_cast<float>(thread + 1);
  });
  meeting = nullptr;
  EXPECT_TRUE(three.all_came);
  EXPECT_EQ(right, 3);
}

TEST(CompileConcurrency, FirstCallsOfManySignaturesAtOnce) {
  auto f = compile([](const Tensor& x, int n) { return sum(x * n); });
  std::atomic<int> wrong{0};
  on_threads(6, [&](int thread) {
    for (int round = 0; round < 3; ++round)
      for (int n = 0; n < 100; ++n)
        wrong += f(ones({1 + (n + thread) % 7}), n).item<int>() != n * (1 + (n + thread) % 7);
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(f.captures(), 64u);
}

TEST(CompileConcurrency, AKernelMayCallTheFunctionThatRunsIt) {
  const ModeGuard mode(Mode::compiled);
  auto f = compile([](const Tensor& x) { return call_inside(x) + 1; });
  float inner = 0;
  const auto call = [&] {
    if (inner != 0) return;
    inner = -1;
    inner = f(full({2}, 5.0)).to_vector<float>()[1];
  };
  FunctionRef<void()> run(call);
  inner_call = &run;
  EXPECT_EQ(f(full({2}, 1.0)).to_vector<float>(), (std::vector{2.0f, 2.0f}));
  EXPECT_EQ(inner, 6);
  inner = 0;
  EXPECT_EQ(f(full({2}, 2.0)).to_vector<float>(), (std::vector{3.0f, 3.0f}));
  EXPECT_EQ(inner, 6);
  inner_call = nullptr;
}

TEST(CompileConcurrency, ARecordingMayWaitForAnotherThreadThatCalls) {
  const ModeGuard mode(Mode::compiled);
  CompiledFunction<std::function<Tensor(const Tensor&, int)>>* self = nullptr;
  std::function<Tensor(const Tensor&, int)> body = [&](const Tensor& x, int depth) {
    if (depth > 0) {
      Tensor other;
      std::thread([&] {
        const ModeGuard compiled(Mode::compiled);
        other = (*self)(ones({3}), 0);
      }).join();
    }
    return x + depth;
  };
  CompiledFunction<std::function<Tensor(const Tensor&, int)>> f(body, Location::current());
  self = &f;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(ones({2}), 1).to_vector<float>(), (std::vector{2.0f, 2.0f}));
}

TEST(CompileConcurrency, BodiesOfLoopsRunSideBySide) {
  const ModeGuard mode(Mode::compiled);
  auto f = compile([](const Tensor& x) {
    return fori_loop(
        0, 5, [](const Tensor&, const Tensor& v) { return v * 2 + 1; }, x);
  });
  f(ones({3})), f(ones({3}));
  std::atomic<int> wrong{0};
  on_threads(4, [&](int thread) {
    const float x = static_cast<float>(thread);
    for (int i = 0; i < 100; ++i) wrong += f(full({3}, x)).to_vector<float>()[2] != x * 32 + 31;
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fermata
