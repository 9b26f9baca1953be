// Long programs: chains and loops of a million steps, and the bound that keeps them flat.
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "runtime/allocator.h"

namespace fermata {
namespace {

constexpr int kMillion = 1'000'000;

class Limits : public ::testing::Test {
 protected:
  ~Limits() override {
    set_pending_limit(limit_);
    set_compile_policy(policy_);
  }
  std::uint32_t limit_ = set_pending_limit(512);
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::second_sight);
  ModeGuard mode_{Mode::compiled};
};

TEST_F(Limits, AMillionPendingCallsAreComputed) {
  set_pending_limit(2 * kMillion);
  Tensor x = zeros({2});
  for (int i = 0; i < kMillion; ++i) x = x + 1;
  EXPECT_TRUE(x.pending());
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{kMillion, kMillion}));
}

TEST_F(Limits, AMillionPendingCallsAreDropped) {
  set_pending_limit(
      4 * kMillion);  // of up to four calls a step: a loop that has reached the bound is cut sooner from then on
  const Tensor start = zeros({2}).sync();
  const std::size_t before = memory_stats().live_bytes;
  {
    Tensor x = start;
    for (int i = 0; i < kMillion; ++i) x = i % 2 == 0 ? x + 1 : reshape(x, {2, 1})[0] + start;
    EXPECT_GT(memory_stats().live_bytes, before + kMillion * sizeof(Node) / 2);
  }
  EXPECT_LT(memory_stats().live_bytes, before + (1 << 20));
}

TEST_F(Limits, ViewsOfViewsAreOneView) {
  set_pending_limit(2 * kMillion);
  Tensor x = arange(6, DType::f32) * 2;
  Tensor view = x;
  for (int i = 0; i < 1000; ++i) view = flip(view, 0);
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  view.assign(1);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(6, 1));
}

/// Runs the loop without a sync and says how many structures it met; memory must not grow with its length.
template <class Body> std::uint64_t structures_of(int steps, Body&& body) {
  for (int i = 0; i < steps / 10; ++i) body(i);
  const std::size_t early = memory_stats().live_bytes;
  const std::uint64_t misses = stats().plan_misses;
  for (int i = steps / 10; i < steps; ++i) body(i);
  EXPECT_LT(memory_stats().live_bytes, early + (1 << 20));
  return stats().plan_misses - misses;
}

TEST_F(Limits, AnInPlaceLoopOfAMillionStepsIsFlat) {
  Tensor x = zeros({8});
  EXPECT_LE(structures_of(kMillion, [&](int) { x += 1; }), 4u);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, kMillion));
}

TEST_F(Limits, ALoopOfSeveralCallsKeepsItsPhase) {
  // 3 and 7 do not divide the bound: without a cut at the same line every round would be another structure.
  Tensor x = ones({8}), sum_of = zeros({});
  EXPECT_LE(structures_of(30'000,
                          [&](int) {
                            x = x * 0.5;
                            x = x + 0.5;
                            sum_of += sum(x);
                          }),
            8u);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, 1));
  EXPECT_EQ(sum_of.item<float>(), 8 * 30'000);
}

TEST_F(Limits, ALoopThroughAViewIsFlat) {
  Tensor x = zeros({4, 3});
  EXPECT_LE(structures_of(50'000, [&](int i) { x[i % 4] += 1; }), 16u);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(12, 12'500));
}

TEST_F(Limits, TheReasonOfAnEarlySyncIsCounted) {
  const auto counted = [] {
    std::uint64_t count = 0;
    for (const auto& [reason, n] : stats().sync_reasons)
      if (reason == "the limit on pending nodes") count = n;
    return count;
  };
  const std::uint64_t before = counted();
  Tensor x = zeros({2});
  for (int i = 0; i < 2000; ++i) x = x + 1;
  EXPECT_GE(counted(), before + 3);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2000, 2000}));
}

}  // namespace
}  // namespace fermata
