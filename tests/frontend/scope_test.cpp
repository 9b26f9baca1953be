// Scopes: what errors, recorded nodes and profiles say of them.
#include "fermata/scope.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "fermata/checks.h"
#include "fermata/modules.h"
#include "fermata/profile.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The one line that all layers share.
const std::string kLine = "scope_test.cpp:" + std::to_string(__LINE__ + 1);
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
    EXPECT_THAT(error, HasSubstr(kLine + "\n  in   encoder.3")) << error;
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
  EXPECT_THAT(text, HasSubstr("block.0 frontend/" + kLine)) << text;
  EXPECT_THAT(text, HasSubstr("block.1 frontend/" + kLine));
}

/// The line of an error that names a scope.
auto IsIn(const std::string& scope) { return ::testing::ContainsRegex("\n  in +" + scope); }

struct Block {
  nn::Linear up{8, 16}, down{16, 8};
  nn::MultiheadAttention attention{8, 2};
  Tensor forward(const Tensor& x) const { return x + down(up(x)) + attention.forward(x); }
};
struct Net {
  nn::Embedding tokens{10, 8};
  std::vector<Block> blocks = std::vector<Block>(2);
  Tensor forward(const Tensor& index) const {
    Tensor x = tokens(index);
    for (const Block& block : blocks) x = block.forward(x);
    return x;
  }
};
/// A module of one's own that takes part.
struct Encoder : nn::Named {
  nn::Linear inner{8, 8};
  FERMATA_TREE(inner)
  Tensor forward(const Tensor& x) const {
    const nn::ModuleScope scope(*this);
    return inner(exp(x)) + 1;
  }
};
struct Outer {
  Encoder encoder;
};

TEST(ScopeTest, ModulesNameThemselves) {
  const Net net;
  EXPECT_THAT(error_of([&] { net.blocks[1].up(ones({2, 3})); }), Not(HasSubstr("\n  in")));  // nobody told it
  EXPECT_EQ(nn::parameter_count(net), 80 + 2 * (8 * 16 + 16 + 16 * 8 + 8 + 24 * 8 + 24 + 64 + 8));
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    EXPECT_THAT(error_of([&] { net.blocks[1].up(ones({2, 3})); }), IsIn("blocks.1.up"));
    const Scope outer("model");
    EXPECT_THAT(error_of([&] { net.blocks[0].down(ones({2, 3})); }), IsIn("model.blocks.0.down"));
    EXPECT_EQ(current_scope(), "model");
  }
  const ModeGuard compiled(Mode::compiled);
  const Tensor index = tensor({std::int64_t{1}, std::int64_t{2}}).reshape({1, 2});
  Profile profile;
  net.forward(index).sync();
  std::set<std::string> scopes;
  for (const ProfileStep& step : profile.summary().steps) scopes.insert(std::string(scope_of(step.where)));
  EXPECT_THAT(scopes, ::testing::IsSupersetOf({"tokens", "blocks.1.up", "blocks.0.attention",
                                               "blocks.0.attention.out_proj"}));  // and not ..attention.blocks.0..
}

TEST(ScopeTest, ModulesOfOnesOwnTakePart) {
  const Outer model;
  nn::parameters(model);
  const CheckNanGuard guard;
  EXPECT_THAT(error_of([&] { model.encoder.forward(full({1, 8}, 100.0f)).sync(); }), HasSubstr("encoder"));
  EXPECT_THAT(error_of([&] { model.encoder.forward(ones({1, 3})).sync(); }), IsIn("encoder.inner"));
  const Outer copy = model;  // has the names, too
  EXPECT_EQ(copy.encoder.inner.module_name(), "encoder.inner");
}

TEST(ScopeTest, ModulesKeepTheirNamesInTransforms) {
  const Net net;
  nn::parameters(net);
  const auto loss = [](const Net& model, const Tensor& x) { return sum(model.blocks[0].up(x)); };
  EXPECT_THAT(error_of([&] { grad(loss)(net, ones({2, 3})); }), IsIn("blocks.0.up"));
  auto step = compile([](const nn::Linear& layer, const Tensor& x) { return layer(x); });
  EXPECT_THAT(error_of([&] { step(net.blocks[0].up, ones({2, 3})); }), IsIn("blocks.0.up"));
  EXPECT_EQ(step(net.blocks[0].up, ones({2, 8})).shape(), Shape({2, 16}));
}

}  // namespace
}  // namespace fermata
