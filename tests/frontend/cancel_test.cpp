// Stopping a computation: it ends with an error, and what was pending can be computed afterwards.
#include "fermata/cancel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

#include "fermata/fermata.h"
#include "fermata/inspect.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

class Cancel : public ::testing::TestWithParam<CompilePolicy> {
 protected:
  Cancel() : before_(set_compile_policy(GetParam())) {}
  ~Cancel() override { set_compile_policy(before_); }
  CompilePolicy before_;
};
INSTANTIATE_TEST_SUITE_P(Policies, Cancel, ::testing::Values(CompilePolicy::immediate, CompilePolicy::never),
                         [](const auto& at) { return at.param == CompilePolicy::never ? "interpreted" : "compiled"; });

TEST_P(Cancel, AStopThatWasRequestedEndsASync) {
  std::stop_source source;
  const Tensor x = ones({50, 50});
  Tensor y = matmul(x, x);
  for (int i = 0; i < 3; ++i) y = matmul(y, x) / 50;
  {
    const StopGuard guard(source.get_token());
    EXPECT_EQ(sum(x).item<int>(), 2500);  // no stop was requested
    source.request_stop();
    try {
      y.sync();
      FAIL();
    } catch (const Cancelled& error) { EXPECT_STREQ(error.what(), "FM3004 Cancelled: the computation was cancelled"); }
    std::thread([&] { EXPECT_EQ(sum(ones({8}) * 2).item<int>(), 16); }).join();  // of another thread
  }
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(2500, 50));
}

TEST_P(Cancel, AStopWithinALongRunEndsIt) {
  const Tensor x = full({300, 300}, 1.0 / 300).sync();
  Tensor y = x;
  for (int i = 0; i < 400; ++i) y = matmul(y, x);
  std::stop_source source;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    source.request_stop();
  });
  {
    const StopGuard guard(source.get_token());
    try {
      for (int round = 0; round < 100'000; ++round) (y + round).sync();  // longer than any test lasts
      ADD_FAILURE() << "it went on";
    } catch (const Cancelled&) {}
  }
  stopper.join();
  EXPECT_NEAR(sum(y).item<double>(), 300, 1e-2);
}

/// A tensor that is written in place keeps its old value, or gets its new one.
TEST_P(Cancel, NothingThatWasThereIsLost) {
  for (int delay = 0; delay < 20; ++delay) {
    std::stop_source source;
    Tensor x = zeros({1 << 18}).sync();
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * delay));
      source.request_stop();
    });
    int written = 0;
    try {
      const StopGuard guard(source.get_token());
      for (; written < 1'000'000; ++written) {
        x += 1;
        x.sync();
      }
    } catch (const Cancelled&) { ++written; }  // the write was recorded
    stopper.join();
    EXPECT_EQ(max(x).item<int>(), written);
    EXPECT_EQ(min(x).item<int>(), written);
  }
}

TEST(CancelledLoops, EndAtTheNextPart) {
  const int threads = thread_count();
  set_thread_count(2);
  std::stop_source source;
  const StopGuard guard(source.get_token());
  std::atomic<int> parts{0};
  EXPECT_THROW(
      {
        const StoppableScope run(true);
        parallel_for(0, 1'000'000, 1000, [&](std::int64_t, std::int64_t) {
          ++parts;
          source.request_stop();
        });
      },
      Cancelled);
  EXPECT_LE(parts.load(), 2);
  set_thread_count(threads);
}

/// Requests a stop when a loop has begun to turn.
class StopsSoon {
 public:
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread thread_{[source = source_]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    source.request_stop();
  }};
};

TEST_P(Cancel, ALoopThatNeverEndsIsStopped) {
  const auto on = [](const Tensor& x) { return x > -1; };
  const auto same = [](const Tensor& x) { return x * 1; };
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    SCOPED_TRACE(mode == Mode::eager ? "eager" : "compiled");
    const ModeGuard guard(mode);
    const StopsSoon stop;
    const StopGuard stopped(stop.token());
    EXPECT_THROW(while_loop(on, same, zeros({})).sync(), Cancelled);
  }
  EXPECT_EQ((zeros({}) + 1).item<int>(), 1);
}

TEST_P(Cancel, ALongScanIsStopped) {
  const auto step = [](const Tensor& carry, const Tensor& x) { return std::pair(carry + x, carry); };
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    SCOPED_TRACE(mode == Mode::eager ? "eager" : "compiled");
    const ModeGuard guard(mode);
    const StopsSoon stop;
    const Tensor xs = ones({100'000'000}, DType::u8).sync();
    const StopGuard stopped(stop.token());
    EXPECT_THROW(scan(step, zeros({}, DType::u8), xs).first.sync(), Cancelled);
  }
}

TEST(CancelScopes, WhatMustNotStopCallsNothingThatMay) {
  std::stop_source source;
  source.request_stop();
  const StopGuard guard(source.get_token());
  EXPECT_THROW(check_stop_of_thread(), Cancelled);
  {
    const StoppableScope outer(false);
    EXPECT_NO_THROW(check_stop_of_thread());
    const StoppableScope inner(true);
    EXPECT_EQ(stop_of_run, nullptr);
    EXPECT_NO_THROW(check_stop_of_thread());
  }
  const StoppableScope alone(true);
  EXPECT_NE(stop_of_run, nullptr);
}

}  // namespace
}  // namespace fermata
