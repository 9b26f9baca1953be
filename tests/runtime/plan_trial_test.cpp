// Plans and calls are chosen between by their times, whatever disturbs some of them.
#include "runtime/plan_trial.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace fermata {
namespace {

constexpr std::uint64_t kUse = 1'000'000;

/// Times of a structure in turns that all are sampled.
struct Program {
  using Times = std::function<std::uint64_t(bool runs_plan, int turn)>;
  explicit Program(Times times) : ns(std::move(times)) {}
  Times ns;
  PlanTrial trial;
  int turns = 0, plans = 0, warm_ups = 0;
  bool is_warm = false;

  bool step(bool has_plan = true) {
    const PlanTrial::Turn turn = trial.next(has_plan, true, kUse);
    EXPECT_TRUE(has_plan || !turn.runs_plan);
    if (turn.warms_up) ++warm_ups, is_warm = true;
    if (turn.runs_plan) ++plans;
    if (turn.is_timed) trial.note(turn, ns(turn.runs_plan, turns), kUse);
    ++turns;
    return turn.runs_plan;
  }
  void run(int times) {
    for (int i = 0; i < times; ++i) step();
  }
};

TEST(PlanTrial, CallsAreMadeUntilThereIsAPlan) {
  Program p([](bool, int) { return 100; });
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(p.step(false));
  EXPECT_TRUE(p.trial.is_open());
}

TEST(PlanTrial, WhatIsClearlyFasterIsChosenSoonAndForGood) {
  for (const bool plan : {false, true}) {
    Program p([&](bool runs_plan, int) { return runs_plan == plan ? 100 : plan ? 300 : 900; });
    p.run(2 * static_cast<int>(PlanTrial::kFew));
    EXPECT_FALSE(p.trial.is_open());
    p.ns = [&](bool runs_plan, int) { return runs_plan == plan ? 300 : 100; };  // nobody looks any more
    for (int i = 0; i < 100000; ++i) ASSERT_EQ(p.step(), plan);
    EXPECT_EQ(p.warm_ups, 0);
  }
}

TEST(PlanTrial, BothAreMeasuredInTurns) {
  // The first half of the trial is disturbed: each is measured outside of it, too.
  Program p([](bool runs_plan, int turn) { return (runs_plan ? 100u : 120u) * (turn < 8 ? 3 : 1); });
  p.run(2 * static_cast<int>(PlanTrial::kTimes));
  EXPECT_FALSE(p.trial.is_open());
  EXPECT_TRUE(p.step());
}

TEST(PlanTrial, APlanThatGetsFasterWithUseIsFound) {
  for (const std::uint32_t at_first : {120u, 400u}) {  // kernels of short rows gain much
    Program p(nullptr);
    p.ns = [&](bool runs_plan, int) { return !runs_plan ? 100u : p.is_warm ? 60u : at_first; };
    p.run(2 * static_cast<int>(PlanTrial::kTimes));
    EXPECT_FALSE(p.trial.is_open());
    EXPECT_FALSE(p.step());  // calls are faster so far
    p.run(static_cast<int>(4 * kUse / 100 / PlanTrial::kOneIn));
    EXPECT_EQ(p.warm_ups, 1);
    p.run(2 * static_cast<int>(PlanTrial::kTimes));
    const int plans = p.plans;
    p.run(1000);
    EXPECT_EQ(p.plans, plans + 1000);
  }
}

TEST(PlanTrial, AChoiceThatWasDisturbedIsCorrected) {
  for (const bool plan : {false, true}) {
    Program p(nullptr);
    p.ns = [&](bool runs_plan, int turn) { return runs_plan == plan ? (turn < 40 ? 130 : 80) : 100; };
    p.run(20);
    EXPECT_FALSE(p.trial.is_open());
    p.run(static_cast<int>(6 * kUse / 80 / PlanTrial::kOneIn));
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(p.step(), plan);
    EXPECT_EQ(p.trial.next(true, true, kUse).is_timed, false) << "the second choice is the last";
  }
}

TEST(PlanTrial, APlanThatIsThereFromTheStartIsComparedAfterSomeUse) {
  for (const bool plan : {false, true}) {
    Program p([&](bool runs_plan, int) { return runs_plan == plan ? 100 : 300; });
    p.trial.begin_with_plan();
    EXPECT_EQ(p.trial.plan_ns(), ~0u);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(p.step());
    EXPECT_EQ(p.trial.plan_ns(), plan ? 100u : 300u);
    p.run(static_cast<int>(kUse / 100));
    EXPECT_FALSE(p.trial.is_open());
    EXPECT_EQ(p.trial.is_settled_on_plan(), plan);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(p.step(), plan);
  }
}

TEST(PlanTrial, APlanMayBeChosenWithoutATrial) {
  Program p([](bool, int) { return 100; });
  p.trial.choose_plan();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(p.step());
  EXPECT_FALSE(p.step(false));  // the entry lost its plan
}

}  // namespace
}  // namespace fermata
