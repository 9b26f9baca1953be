// Scopes: what errors, recorded nodes and profiles say of them.
#include "fermata/scope.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <thread>

#include "fermata/checkpoint.h"
#include "fermata/checks.h"
#include "fermata/custom_function.h"
#include "fermata/inspect.h"
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
  EXPECT_THAT(error_of([&] { net.blocks[1].up(ones({2, 3})); }), Not(HasSubstr("\n  in")));  // unnamed modules
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

/// A model whose parameters are matrices, as Muon wants them.
struct Matrices {
  std::vector<nn::Linear> layers = std::vector<nn::Linear>(2, nn::Linear(4, 4, {.bias = false}));
};
template <class Optimizer> class OptimizerScopeTest : public ::testing::Test {};
using Optimizers = ::testing::Types<optim::SGD, optim::Adam, optim::AdamW, optim::RMSprop, optim::Adagrad,
                                    optim::Adadelta, optim::Adamax, optim::NAdam, optim::RAdam, optim::Lion,
                                    optim::ASGD, optim::Rprop, optim::Muon, optim::LBFGS>;
TYPED_TEST_SUITE(OptimizerScopeTest, Optimizers);

TYPED_TEST(OptimizerScopeTest, NamesTheModules) {
  const Matrices model;
  EXPECT_EQ(model.layers[1].module_name(), "");
  const TypeParam optimizer(model);
  EXPECT_EQ(model.layers[0].module_name(), "layers.0");
  EXPECT_EQ(model.layers[1].module_name(), "layers.1");
  EXPECT_EQ(optimizer.parameters().size(), 2u);
}

enum class Task { translate, summarize };
struct Heads {
  std::map<Task, nn::Linear> heads = {{Task::translate, {4, 4}}, {Task::summarize, {4, 4}}};
  Buffer table{ones({2})};
};

TEST(ScopeTest, KeysThatAreNoTextsArePositions) {
  const Heads model;
  const optim::SGD optimizer(model);
  EXPECT_EQ(optimizer.parameters().size(), 4u);  // not the buffer
  EXPECT_EQ(model.heads.at(Task::summarize).module_name(), "heads.1");
}

std::set<std::string> scopes_of_steps(Profile& profile) {
  std::set<std::string> scopes;
  for (const ProfileStep& step : profile.summary().steps) scopes.insert(std::string(scope_of(step.where)));
  return scopes;
}

TEST(ScopeTest, BackwardPassesHaveTheScopesOfTheirCalls) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const Net net;
    nn::train(net);
    for (Tensor x : nn::parameters(net)) x.requires_grad(true);
    const Tensor index = tensor({std::int64_t{1}, std::int64_t{2}}).reshape({1, 2});
    Profile profile;
    sum(net.forward(index)).backward();
    const Tensor gradient = net.blocks[1].up.weight.grad();
    if (mode == Mode::compiled) {
      EXPECT_THAT(explain(gradient), HasSubstr(" in blocks.1.up (backward)\n"));
      EXPECT_THAT(dump_ir(gradient), HasSubstr(" in blocks.1.down (backward)\n"));
    }
    sync(nn::gradients(net));
    const std::set<std::string> scopes = scopes_of_steps(profile);
    EXPECT_THAT(scopes, ::testing::IsSupersetOf({"blocks.1.up", "blocks.1.up (backward)", "blocks.0.down (backward)",
                                                 "blocks.0.attention.out_proj (backward)"}));
    for (const std::string& scope : scopes) EXPECT_THAT(scope, Not(::testing::ContainsRegex("backward.*backward")));
  }
}

TEST(ScopeTest, GradientsWithoutAScopeHaveNone) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = tensor({1.0f, 4.0f}).requires_grad(true);
  sum(sqrt(x)).backward();
  EXPECT_THAT(dump_ir(x.grad()), Not(HasSubstr(" in ")));
  const Scope scope("training");  // where there is none, that of the backward pass
  x.zero_grad();
  const Tensor y = [&] {
    Scope inner("model");
    return sqrt(x);
  }();
  sum(y).backward();
  EXPECT_THAT(dump_ir(x.grad()), HasSubstr(" in training.model (backward)"));
}

TEST(ScopeTest, ErrorsOfBackwardPassesNameTheScopeOfTheCall) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const Tensor x = tensor({0.0f, 4.0f}).requires_grad(true);
    const CheckNanGuard check;
    const auto pass = [&] {
      Tensor y;
      {
        const Scope scope("head");
        y = sqrt(x);
      }
      sum(y).backward();
      x.grad().sync();
    };
    EXPECT_THAT(error_of(pass), IsIn("head \\(backward\\)"));
  }
}

TEST(ScopeTest, GradientsOfGradientsAreMarkedOnce) {
  const ModeGuard compiled(Mode::compiled);
  const auto f = [](const Tensor& x) {
    const Scope scope("cube");
    return sum(x * x * x);
  };
  const auto second = grad([&](const Tensor& x) { return sum(grad(f)(x)); });
  const std::string text = dump_ir(second(tensor({1.0f, 2.0f})));
  EXPECT_THAT(text, HasSubstr(" in cube (backward)\n"));
  EXPECT_THAT(text, Not(HasSubstr("(backward) (backward)")));
}

struct Halved : Function<Halved> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 1; }
  static std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor> g) { return {log(g[0]) * 0.5}; }
};

TEST(ScopeTest, BackwardPassesByHandAreInTheScopeOfTheCall) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = tensor({1.0f, 4.0f}).requires_grad(true);
  Tensor y;
  {
    const Scope scope("halved");
    y = Halved::apply(x);
  }
  sum(y).backward();
  EXPECT_EQ(current_scope(), "");
  EXPECT_THAT(dump_ir(x.grad()), ::testing::ContainsRegex("log.* in halved \\(backward\\)"));
}

TEST(ScopeTest, WhatCheckpointsRunAgainKeepsItsScope) {
  const ModeGuard compiled(Mode::compiled);
  struct Model : nn::Named {
    Encoder encoder;
    FERMATA_TREE(encoder)
    Tensor forward(const Tensor& x) const {
      const nn::ModuleScope scope(*this);
      return checkpoint([](const Encoder& e, const Tensor& v) { return e.forward(v); })(encoder, x);
    }
  };
  struct Outermost {
    Model model;
  };
  const Outermost net;
  const optim::Adam adam(net);
  for (Tensor x : adam.parameters()) x.requires_grad(true);
  sum(net.model.forward(ones({1, 8}))).backward();
  const std::string text = dump_ir(net.model.encoder.inner.weight.grad());
  EXPECT_THAT(text, HasSubstr(" in model.encoder.inner (backward)\n")) << text;
  EXPECT_THAT(text, HasSubstr(" in model.encoder\n")) << text;  // exp(x), again
  EXPECT_THAT(text, Not(HasSubstr("model.encoder.model"))) << text;
}

}  // namespace
}  // namespace fermata
