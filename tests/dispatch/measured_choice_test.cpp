// Comparisons of kernels: when they are made, what they decide, what they leave alone and what is kept of them. Kernels
// take as long as a clock of the test says.
#include "dispatch/measured_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <stdexcept>

#include "dispatch/measured_choices.h"
#include "dispatch/operator.h"
#include "ir/shape.h"
#include "runtime/background.h"
#include "runtime/calibration_wish.h"
#include "runtime/disk_cache.h"

namespace fermata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::int64_t now_ns = 0;
std::array<int, 3> calls_of{};
std::int64_t slow_ns = 0, quick_ns = 0;

/// Leaves its number in the first element of the result.
template <int Number> void kernel(const CallArgs& args) {
  ++calls_of[Number];
  now_ns += Number == 0 ? slow_ns : quick_ns;
  *static_cast<float*>(args.outputs[0].data) = static_cast<float>(Number);
}
void broken(const CallArgs&) {
  ++calls_of[2];
  throw std::runtime_error("broken");
}

class MeasuredChoices : public ::testing::Test {
 protected:
  void SetUp() override {
    now_ns = 0, calls_of = {}, slow_ns = 100'000, quick_ns = 50'000;
    view_ = {memory_.data(), DType::f32, 1, sizes_.data(), strides_.data()};
  }
  CallArgs args() { return {Op::matmul, {&view_, 1}, {&view_, 1}, {}, {}}; }
  static KernelVariant variant(const char* name, CallKernel call, double (*cost)(const CallArgs&) = nullptr,
                               DType dtype = DType::f32) {
    return {.name = name, .form = KernelForm::library, .dtypes = dtype, .call = call, .cost = cost};
  }
  static std::int64_t clock() { return now_ns; }

  std::array<float, 4> memory_{};
  Shape sizes_{4}, strides_{1};
  TensorView view_;
};

TEST_F(MeasuredChoices, AKernelThatIsFasterByMoreThanATenthReplacesThePredictedOne) {
  const KernelVariant slow = variant("slow", &kernel<0>), quick = variant("quick", &kernel<1>);
  int settled = 0;
  MeasuredChoice choice(
      {{slow, 80e3}, {quick, 90e3}}, [&](const MeasuredChoice&) { ++settled; }, &clock);
  int calls = 0;
  for (; !choice.is_settled() && calls < 1000; ++calls) {
    choice.run(slow.call, args());
    EXPECT_EQ(memory_[0], 0) << "a comparison writes elsewhere";
  }
  EXPECT_LT(calls, 40);
  EXPECT_EQ(settled, 1);
  EXPECT_EQ(choice.winner(), &quick);
  EXPECT_EQ(choice.kernel(slow.call, args()), quick.call);
  choice.run(slow.call, args());
  EXPECT_EQ(memory_[0], 1);
  EXPECT_EQ(settled, 1);
}

TEST_F(MeasuredChoices, ASmallerDifferenceChangesNothing) {
  quick_ns = 95'000;
  const KernelVariant slow = variant("slow", &kernel<0>), quick = variant("quick", &kernel<1>);
  MeasuredChoice choice({{slow, 80e3}, {quick, 90e3}}, {}, &clock);
  for (int i = 0; i < 100; ++i) choice.run(slow.call, args());
  EXPECT_TRUE(choice.is_settled());
  EXPECT_EQ(choice.winner(), nullptr);
  EXPECT_EQ(choice.kernel(slow.call, args()), slow.call);
}

TEST_F(MeasuredChoices, ComparisonsTakeAtMostAThirdOfTheTimeOfTheCalls) {
  slow_ns = 100'000, quick_ns = 110'000;
  const KernelVariant slow = variant("slow", &kernel<0>), quick = variant("quick", &kernel<1>);
  MeasuredChoice choice({{slow, 80e3}, {quick, 81e3}}, {}, &clock);
  for (int calls = 1; calls < 100; ++calls) {
    choice.run(slow.call, args());
    EXPECT_LE(now_ns - calls * slow_ns, calls * slow_ns / 3 + slow_ns) << calls;
  }
  EXPECT_TRUE(choice.is_settled());
  EXPECT_EQ(calls_of[1], 6) << "one to make ready and five that count";
}

TEST_F(MeasuredChoices, WhatIsPredictedToBeFarSlowerIsNotTried) {
  const KernelVariant slow = variant("slow", &kernel<0>), quick = variant("quick", &kernel<1>);
  MeasuredChoice choice({{slow, 80e3}, {quick, 80e4}}, {}, &clock);
  for (int i = 0; i < 100; ++i) choice.run(slow.call, args());
  EXPECT_TRUE(choice.is_settled());
  EXPECT_EQ(calls_of[1], 0);
}

TEST_F(MeasuredChoices, UnlessThePredictedOneTakesThatLong) {
  slow_ns = 900'000;
  const KernelVariant slow = variant("slow", &kernel<0>), quick = variant("quick", &kernel<1>);
  MeasuredChoice choice({{slow, 80e3}, {quick, 80e4}}, {}, &clock);
  for (int i = 0; i < 100; ++i) choice.run(slow.call, args());
  EXPECT_EQ(choice.winner(), &quick);
}

TEST_F(MeasuredChoices, AnErrorOfAComparisonIsNoneOfTheCall) {
  const KernelVariant slow = variant("slow", &kernel<0>), bad = variant("bad", &broken);
  MeasuredChoice choice({{slow, 80e3}, {bad, 81e3}}, {}, &clock);
  for (int i = 0; i < 100; ++i) EXPECT_NO_THROW(choice.run(slow.call, args()));
  EXPECT_EQ(calls_of[2], 1);
  EXPECT_TRUE(choice.is_settled());
  EXPECT_EQ(choice.winner(), nullptr);
}

TEST_F(MeasuredChoices, AWinnerDoesOnlyWhatFitsIt) {
  const KernelVariant slow = variant("slow", &kernel<0>);
  KernelVariant quick = variant("quick", &kernel<1>);
  quick.fits = [](const CallArgs& a) { return a.inputs[0].sizes[0] == 4; };
  const MeasuredChoice choice({{slow, 80e3}, {quick, 90e3}}, 1);
  EXPECT_EQ(choice.kernel(slow.call, args()), quick.call);
  sizes_ = {3};
  view_.sizes = sizes_.data();
  EXPECT_EQ(choice.kernel(slow.call, args()), slow.call);
}

TEST_F(MeasuredChoices, AreKeptForThisProcessAndLaterOnes) {
  const std::string folder = (std::filesystem::temp_directory_path() / "fermata_measured_choices_test").string();
  std::filesystem::remove_all(folder);
  const std::string folder_before = DiskCache::instance().set_directory(folder);
  const CalibrationWish wish_before = set_calibration_wish(CalibrationWish::if_unknown);
  set_choice_clock(&clock);

  // The op has no kernels of its own for this dtype.
  const Op op = Op::matmul_packed;
  const OperatorEntry& entry = operator_entry(op);
  constexpr DType kDType = DType::boolean;
  view_.dtype = kDType;
  const auto cost_slow = [](const CallArgs&) { return 80e3; };
  const auto cost_quick = [](const CallArgs&) { return 90e3; };
  add_variant(op, BackendKey::cpu, variant("slow", &kernel<0>, cost_slow, kDType));
  add_variant(op, BackendKey::cpu, variant("quick", &kernel<1>, cost_quick, kDType));
  CallArgs call = args();
  call.op = op;
  for (int i = 0; i < 100; ++i) run_call(entry, BackendKey::cpu, kDType, call, {});
  EXPECT_EQ(memory_[0], 1);
  EXPECT_EQ(select_call(entry, BackendKey::cpu, kDType, call, {}).call, &kernel<1>);
  const auto known = measured_times(BackendKey::cpu, *backend_cell(op, BackendKey::cpu), call);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->winner, "quick");
  ASSERT_EQ(known->times.size(), 2u);
  EXPECT_EQ(known->times[0].ns, 100e3);
  EXPECT_EQ(known->times[1].ns, 50e3);

  // Other sizes are another kind of call.
  sizes_ = {3};
  EXPECT_EQ(select_call(entry, BackendKey::cpu, kDType, call, {}).call, &kernel<0>);
  sizes_ = {4};

  // By predictions alone.
  set_calibration_wish(CalibrationWish::never);
  EXPECT_EQ(select_call(entry, BackendKey::cpu, kDType, call, {}).call, &kernel<0>);
  EXPECT_THAT(replaced_choices(), ElementsAre());
  set_calibration_wish(CalibrationWish::if_unknown);
  EXPECT_TRUE(set_replace_kernels(false));
  EXPECT_EQ(select_call(entry, BackendKey::cpu, kDType, call, {}).call, &kernel<0>);
  EXPECT_FALSE(set_replace_kernels(true));
  EXPECT_EQ(select_call(entry, BackendKey::cpu, kDType, call, {}).call, &kernel<1>);

  wait_for_background();
  ASSERT_THAT(replaced_choices(), ElementsAre(HasSubstr("quick 50.0 us instead of slow 100.0 us")));

  // A change of the kernels begins anew, with what is kept.
  add_variant(op, BackendKey::cpu,
              variant(
                  "other", &kernel<2>, [](const CallArgs&) { return 1e9; }, kDType));
  const int before = calls_of[0];
  run_call(entry, BackendKey::cpu, kDType, call, {});
  EXPECT_EQ(calls_of[0], before);
  EXPECT_EQ(memory_[0], 1);

  forget_choices();
  EXPECT_THAT(replaced_choices(), ElementsAre());
  set_choice_clock(nullptr);
  set_calibration_wish(wish_before);
  DiskCache::instance().set_directory(folder_before);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fermata
