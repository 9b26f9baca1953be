// Syncs of a few small calls, which ask for no plan: the same values, the same handles that are kept, the same kernels,
// traces and counts as on the longer ways.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "fermata/fermata.h"
#include "fermata/library.h"
#include "runtime/bound_plan.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& x) { return x.to_vector<float>(); }

class FewCallsTest : public ::testing::Test {
 protected:
  ~FewCallsTest() override { set_compile_policy(policy_); }
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::background);
  ModeGuard mode_{Mode::compiled};
  const Tensor x_ = tensor({1.0f, 2.0f, 3.0f}).sync();
};

TEST_F(FewCallsTest, AskForNoPlan) {
  clear_compile_caches();
  const Stats before = stats();
  const Tensor a = x_ + 1, b = a * x_;
  sync({a, b});
  EXPECT_EQ(floats(b), (Floats{2, 6, 12}));
  const Stats after = stats();
  EXPECT_EQ(after.plan_misses, before.plan_misses);
  EXPECT_EQ(after.plan_hits, before.plan_hits);
  EXPECT_EQ(after.call_plays, before.call_plays + 1);
  EXPECT_EQ(after.syncs, before.syncs + 1);
}

TEST_F(FewCallsTest, PoliciesThatWantPlansGetThem) {
  set_compile_policy(CompilePolicy::immediate);
  clear_compile_caches();
  const std::uint64_t before = stats().plans_compiled;
  EXPECT_EQ(floats(x_ - 1), (Floats{0, 1, 2}));
  EXPECT_EQ(stats().plans_compiled, before + 1);
}

TEST_F(FewCallsTest, KeepWhatHandlesNameAndLeaveTheRestPending) {
  const Tensor a = x_ + 1, b = a * 2, c = a * 3;
  b.sync();
  EXPECT_FALSE(a.pending());
  EXPECT_TRUE(c.pending());
  Tensor d = x_ * x_;
  Node* const node = d.node();
  const Tensor e = d + 1, f = d + 2;
  d = Tensor();
  e.sync();
  EXPECT_FALSE(node->pending());  // f reads it
  EXPECT_EQ(floats(f), (Floats{3, 6, 11}));
}

/// Every shape that an operand may have beside the result, with dtypes that kernels take as they are and others.
TEST_F(FewCallsTest, GiveWhatEagerCallsGive) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i32, DType::u8, DType::c64}) {
    const Tensor m = arange(6, dtype).reshape({2, 3}).sync(), row = arange(3, dtype).sync();
    const Tensor one = full({1, 1}, 2, dtype).sync(), scalar = full({}, 3, dtype).sync();
    const Tensor turned = transpose(arange(6, dtype).reshape({3, 2})).sync();
    const Tensor none = zeros({0, 3}, dtype).sync();
    const auto compute = [&](Mode mode) {
      const ModeGuard guard(mode);
      return std::vector<Tensor>{m + m,
                                 m * scalar,
                                 scalar * m + scalar,
                                 one + m,
                                 m + row,
                                 turned * m,
                                 m + 2,
                                 3 - scalar,
                                 none + m[0],
                                 m * turned + one,
                                 sum(m + 1),
                                 sum(turned, 1, true) + 1,
                                 sum(m, 0) * scalar,
                                 m.slice(1, 0, 3, 2) + 1,
                                 (m + 1) * (m + 1)};
    };
    const std::vector<Tensor> eager = compute(Mode::eager), compiled = compute(Mode::compiled);
    for (std::size_t i = 0; i < eager.size(); ++i) {
      ASSERT_EQ(compiled[i].shape(), eager[i].shape()) << i;
      EXPECT_TRUE(all(equal(compiled[i], eager[i])).item<bool>()) << i << " " << name(dtype);
    }
  }
}

TEST_F(FewCallsTest, AreInTheDispatchTrace) {
  set_trace_dispatch(true);
  ::testing::internal::CaptureStderr();
  (x_ + 1).sync();
  const std::string trace = ::testing::internal::GetCapturedStderr();
  set_trace_dispatch(false);
  EXPECT_NE(trace.find("add [step/"), std::string::npos) << trace;
}

/// The interpreter of larger graphs shows its steps, too.
TEST_F(FewCallsTest, SoAreThoseOfGraphsThatAreInterpreted) {
  set_compile_policy(CompilePolicy::never);
  Tensor y = x_;
  for (int i = 0; i < 20; ++i) y = y + 1;
  set_trace_dispatch(true);
  ::testing::internal::CaptureStderr();
  y.sync();
  const std::string trace = ::testing::internal::GetCapturedStderr();
  set_trace_dispatch(false);
  EXPECT_NE(trace.find("add [step/"), std::string::npos) << trace;
}

TEST_F(FewCallsTest, RunTheKernelThatAProgramRegisters) {
  EXPECT_EQ(floats(sinh(x_) - sinh(x_)), (Floats{0, 0, 0}));
  const Tensor before = sinh(x_);
  {
    Library cpu(Library::Kind::implementation, "fermata", "CPU");
    cpu.impl("sinh", [](const Operand& v) { return full(v.tensor().shape(), 7, v.tensor().dtype()); },
             {.replaces = true});
    EXPECT_EQ(floats(sinh(x_)), (Floats{7, 7, 7}));
    EXPECT_EQ(floats(sinh(x_) + 1), (Floats{8, 8, 8}));
  }
  EXPECT_EQ(floats(sinh(x_)), floats(before));
}

/// What only the tape holds: stored sooner than computed again, by every way through a sync.
TEST_F(FewCallsTest, KeepSmallValuesOfTheTapeAsPlansDo) {
  for (const CompilePolicy policy : {CompilePolicy::background, CompilePolicy::never, CompilePolicy::immediate}) {
    set_compile_policy(policy);
    Tensor x = tensor({1.0f, 2.0f});
    x.requires_grad(true);
    Tensor y = exp(x);
    Node* const node = y.node();
    const Tensor z = y * y;
    y = Tensor();
    z.sync();
    EXPECT_FALSE(node->pending());
    sum(z).backward();
    EXPECT_NEAR(floats(x.grad())[1], 2 * std::exp(4.0f), 1e-3f);
  }
}

TEST_F(FewCallsTest, OfSeveralThreadsGiveOneValue) {
  for (int round = 0; round < 100; ++round) {
    const Tensor shared = x_ + round, left = shared * 2;
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ++ready;
      while (ready != 2) std::this_thread::yield();
    };
    const Storage* theirs = nullptr;
    std::thread other([&] {
      set_mode(Mode::compiled);
      meet();
      left.sync();
      theirs = shared.node()->storage.load();
    });
    meet();
    left.sync();
    const Storage* const mine = shared.node()->storage.load();
    other.join();
    EXPECT_EQ(theirs, mine);
    EXPECT_EQ(floats(left)[2], static_cast<float>(2 * (3 + round)));
  }
}

std::atomic<int> additions, products;
void count_step(std::string_view op, BackendKey, Location) {
  if (op == "add") ++additions;
  if (op == "multiply") ++products;
}

/// What several threads need is made by one of them, and what each needs alone by itself.
TEST_F(FewCallsTest, OfSeveralThreadsRunEachKernelOnce) {
  constexpr int kThreads = 4;
  const WatchStep before = watch_step.exchange(&count_step);
  for (int round = 0; round < 200; ++round) {
    const Tensor shared = x_ + round;
    std::vector<Tensor> results;
    for (int k = 0; k < kThreads; ++k) results.push_back(shared * k);
    additions = 0, products = 0;
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < kThreads; ++k)
      threads.emplace_back([&, k] {
        set_mode(Mode::compiled);
        ++ready;
        while (ready != kThreads) std::this_thread::yield();
        results[static_cast<std::size_t>(k)].sync();
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(additions, 1) << "round " << round;
    EXPECT_EQ(products, kThreads) << "round " << round;
    for (int k = 0; k < kThreads; ++k)
      EXPECT_EQ(floats(results[static_cast<std::size_t>(k)])[2], static_cast<float>(k * (3 + round)));
  }
  watch_step = before;
}

}  // namespace
}  // namespace fermata
