// Warnings about syncs in loops and structures that never recur: once for each line.
#include "frontend/engine/habit_warnings.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace fermata {
namespace {

using ::testing::HasSubstr;

class HabitWarnings : public ::testing::Test {
 protected:
  HabitWarnings() { habit_warnings = true; }
  ~HabitWarnings() override { habit_warnings = false; }
  static int lines_in(const std::string& text) { return static_cast<int>(std::ranges::count(text, '\n')); }
  ModeGuard compiled_{Mode::compiled};
};

TEST_F(HabitWarnings, SyncInALoop) {
  Tensor x = ones({4}).sync();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 250; ++i) {
    x = x * 0.5 + 1;
    x.sync();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_in(text), 1) << text;
  EXPECT_THAT(text, HasSubstr("fermata warning: frontend/habit_warnings_test.cpp:29: a value was computed here 100 "
                              "times, after 2 recorded calls each time"));
}

TEST_F(HabitWarnings, StructuresThatNeverRecur) {
  const Tensor x = ones({4}).sync();
  ::testing::internal::CaptureStderr();
  for (int n = 20; n < 40; ++n) {
    Tensor y = x;
    for (int i = 0; i < n; ++i) y = cos(y) - 3;
    y.sync();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_in(text), 1) << text;
  EXPECT_THAT(text, HasSubstr("habit_warnings_test.cpp:43: 16 of 16 programs here had a new structure"));
}

TEST_F(HabitWarnings, NoneForWorkThatIsDoneOnce) {
  const Tensor x = ones({4}).sync();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 20; ++i) (x + i).sync();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace fermata
