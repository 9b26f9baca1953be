// Callers: through which functions of the program a call was reached, in errors at the call, in errors at a sync, and
// in profiles.
#include "fermata/callers.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "fermata/checks.h"
#include "fermata/profile.h"
#include "fermata/scope.h"
#include "ir/scope.h"

namespace fermata {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// No call takes the place of the one that it is in.
__attribute__((noinline)) Tensor inner(const Tensor& x) {
  Tensor y = sqrt(x);
  __asm__ volatile("");
  return y;
}
__attribute__((noinline)) Tensor outer(const Tensor& x) {
  Tensor y = inner(x);
  __asm__ volatile("");
  return y;
}

/// Some compilers name it with its namespace, and some libraries do not find its line.
constexpr const char* kFromOuter = "\n +from +(frontend/callers_test.cpp:[0-9]+ .)?[a-z:]*outer";

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "no error";
}

class CallersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      before_ = show_callers(true);
    } catch (const UnsupportedError& error) { GTEST_SKIP() << error.what(); }
  }
  ~CallersTest() override {
    if (!IsSkipped()) show_callers(before_);
  }
  bool before_ = false;
};

TEST_F(CallersTest, ErrorsAtTheCall) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const std::string error = error_of([] { outer(Tensor()); });
    EXPECT_THAT(error, ContainsRegex(kFromOuter)) << error;
    EXPECT_THAT(error, Not(HasSubstr("inner)")));  // its line is the one of the error
    EXPECT_THAT(error, Not(HasSubstr("format_error")));
    EXPECT_THAT(error, HasSubstr("callers_test.cpp:"));
  }
}

TEST_F(CallersTest, ErrorsAtTheSync) {
  const ModeGuard compiled(Mode::compiled);
  const CheckNanGuard guard;
  const Tensor y = outer(tensor({-1.0f}));
  const std::string error = error_of([&] { y.sync(); });
  EXPECT_THAT(error, ContainsRegex(kFromOuter)) << error;
}

TEST_F(CallersTest, EndWithMain) {
  const std::string error = error_of([] { outer(Tensor()); });
  EXPECT_THAT(error, Not(HasSubstr("libc")));
  EXPECT_THAT(error.substr(error.rfind('\n')), ::testing::AnyOf(HasSubstr("main"), HasSubstr("callers_test.cpp")));
}

TEST_F(CallersTest, StayWithScopes) {
  const Scope scope("encoder");
  const Location here = within_scope(Location::current());
  EXPECT_EQ(scope_of(here), "encoder");
  EXPECT_EQ(within_scope(here).function_name(), here.function_name());
}

TEST_F(CallersTest, TellTwoUsesOfAHelperApart) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = ones({64}).sync();
  Profile profile;
  outer(x).sync();
  inner(x).sync();
  const std::string text = to_string(profile.summary());
  EXPECT_THAT(text, ContainsRegex(kFromOuter)) << text;
}

TEST_F(CallersTest, CostNothingOnceTheyAreOff) {
  show_callers(false);
  const std::string error = error_of([] { outer(Tensor()); });
  EXPECT_THAT(error, Not(HasSubstr("\n  from")));
  const Location here = Location::current();
  EXPECT_EQ(within_scope(here).function_name(), here.function_name());
  show_callers(true);
}

}  // namespace
}  // namespace fermata
