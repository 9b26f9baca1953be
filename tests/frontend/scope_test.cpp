// Scopes: what errors, recorded nodes and profiles say of them.
#include "fermata/scope.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "fermata/checks.h"
#include "fermata/profile.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The one line that all layers share.
Tensor layer(const Tensor& x, const Tensor& w) { return tanh(matmul(x, w)); }

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "no error";
}

TEST(ScopeTest, NamesNest) {
  EXPECT_EQ(current_scope(), "");
  {
    const Scope model("model");
    EXPECT_EQ(current_scope(), "model");
    for (int i = 0; i < 2; ++i) {
      const Scope encoder("encoder." + std::to_string(i));
      EXPECT_EQ(current_scope(), "model.encoder." + std::to_string(i));
    }
    EXPECT_EQ(current_scope(), "model");
    std::thread([] { EXPECT_EQ(current_scope(), ""); }).join();
  }
  EXPECT_EQ(current_scope(), "");
}

TEST(ScopeTest, LinesKeepTheirScope) {
  const Location here = Location::current();
  EXPECT_EQ(scope_of(here), "");
  Location there;
  {
    const Scope scope("decoder");
    there = within_scope(here);
    EXPECT_EQ(std::string(within_scope(there).function_name()), there.function_name());
  }
  EXPECT_EQ(scope_of(there), "decoder");
  EXPECT_EQ(there.line(), here.line());
  EXPECT_STREQ(there.file_name(), here.file_name());
  EXPECT_EQ(scope_of(within_scope(here)), "");
}

TEST(ScopeTest, ErrorsNameIt) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const Scope scope("encoder.3");
    const std::string error = error_of([] { layer(ones({2, 3}), ones({4, 5})); });
    EXPECT_THAT(error, HasSubstr("scope_test.cpp:21\n  in   encoder.3")) << error;
  }
  EXPECT_THAT(error_of([] { layer(ones({2, 3}), ones({4, 5})); }), Not(HasSubstr("\n  in")));
}

TEST(ScopeTest, RecordedCallsKeepIt) {
  const ModeGuard compiled(Mode::compiled);
  Tensor x = tensor({-1.0f, 2.0f}).sync();
  {
    const Scope scope("head");
    x = sqrt(x) + 1;
  }
  const CheckNanGuard guard;
  EXPECT_THAT(error_of([&] { x.sync(); }), HasSubstr("\n  in        head"));
}

TEST(ScopeTest, ProfilesNameSteps) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = ones({64, 64}).sync(), w = ones({64, 64}).sync();
  Profile profile;
  Tensor y = x;
  for (int i = 0; i < 2; ++i) {
    const Scope scope("block." + std::to_string(i));
    y = layer(y, w);
  }
  y.sync();
  const std::string text = to_string(profile.summary());
  EXPECT_THAT(text, HasSubstr("block.0 frontend/scope_test.cpp:21")) << text;
  EXPECT_THAT(text, HasSubstr("block.1 frontend/scope_test.cpp:21"));
}

}  // namespace
}  // namespace fermata
