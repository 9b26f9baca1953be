// Profiles: what they count, the trace that is written, what they advise, and that they leave nothing behind.
#include "fermata/profile.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/events.h"
#include "runtime/machine_limits.h"
#include "tests/dispatch/every_way.h"
#include "tests/frontend/fast_machine.h"
#include "tests/frontend/scratch_folder.h"

namespace fermata {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ProfileTest : public test::InScratchFolder {
 protected:
  ModeGuard compiled_{Mode::compiled};
  PolicyGuard policy_{CompilePolicy::second_sight};
};

Tensor layer(const Tensor& x, const Tensor& w) { return tanh(matmul(x, w) + 1); }

int count_of(std::string_view part, std::string_view text) {
  int count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

const ProfileStep* find_step(const ProfileSummary& summary, const std::string& text) {
  for (const ProfileStep& step : summary.steps)
    if (step.detail.find(text) != std::string::npos || step.name == text) return &step;
  return nullptr;
}

TEST_F(ProfileTest, CountsSyncsAndSteps) {
  const Tensor x = ones({32, 64}).sync(), w = ones({64, 48}).sync();
  for (int i = 0; i < 3; ++i) layer(x, w).sync();
  Profile profile;
  for (int i = 0; i < 5; ++i) layer(x, w).sync();
  const ProfileSummary summary = profile.summary();
  layer(x, w).sync();  // after the end
  EXPECT_EQ(summary.syncs, 5u);
  EXPECT_EQ(summary.plan_misses, 0u);
  EXPECT_EQ(summary.plans_compiled, 0u);
  EXPECT_EQ(summary.recorded_calls, 15u);
  EXPECT_EQ(summary.dropped, 0u);
  const ProfileStep* const product = find_step(summary, "matmul [32, 64] [64, 48] -> [32, 48]");
  ASSERT_NE(product, nullptr) << to_string(summary);
  EXPECT_EQ(product->runs, 5u);
  EXPECT_GE(product->operations, 2.0 * 32 * 64 * 48);
  EXPECT_GE(product->bytes, 4.0 * (32 * 64 + 64 * 48 + 32 * 48));
  EXPECT_GT(product->limit_us, 0);
  EXPECT_GT(product->us, 0);
  EXPECT_EQ(profile.summary().syncs, 5u);
}

TEST_F(ProfileTest, NothingIsCollectedOutside) {
  const Tensor x = ones({8}).sync();
  EXPECT_FALSE(wants_events());
  {
    const Profile outer;
    EXPECT_TRUE(wants_events());
    { const Profile inner; }
    EXPECT_TRUE(wants_events());
  }
  EXPECT_FALSE(wants_events());
  Profile profile;
  profile.stop();
  (x + 1).sync();
  EXPECT_EQ(profile.summary().events, 0u);
}

TEST_F(ProfileTest, ProfilesNest) {
  const Tensor x = ones({8}).sync();
  Profile outer;
  (x + 1).sync();
  Profile inner;
  (x + 2).sync();
  EXPECT_EQ(inner.summary().syncs, 1u);
  (x + 3).sync();
  EXPECT_EQ(outer.summary().syncs, 3u);
}

TEST_F(ProfileTest, SeesEagerCalls) {
  const ModeGuard eager(Mode::eager);
  const Tensor x = ones({16});
  Profile profile;
  const Tensor y = exp(x) + x;
  const ProfileSummary summary = profile.summary();
  const ProfileStep* const call = find_step(summary, "exp");
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->runs, 1u);
  EXPECT_THAT(std::string(call->where.file_name()), HasSubstr("profile_test.cpp"));
  EXPECT_EQ(summary.syncs, 0u);
}

TEST_F(ProfileTest, SeesCompiling) {
  clear_compile_caches();
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = ones({33, 5}).sync();
  Profile profile;
  sum(x * 3 - 2, 0).sync();
  set_compile_policy(before);
  const ProfileSummary summary = profile.summary();
  EXPECT_EQ(summary.plan_misses, 1u);
  EXPECT_EQ(summary.plans_compiled, 1u);
  EXPECT_GT(summary.compiling_us, 0);
}

TEST_F(ProfileTest, SeesReplays) {
  const Tensor x = ones({8}).sync();
  auto step = compile([](const Tensor& t) { return exp(t) * 2; });
  for (int i = 0; i < 3; ++i) step(x);
  Profile profile;
  for (int i = 0; i < 4; ++i) step(x);
  const ProfileSummary summary = profile.summary();
  EXPECT_EQ(summary.replays, 4u);
  EXPECT_EQ(summary.syncs, 0u);
}

TEST_F(ProfileTest, HasTheProgramOfAFunctionThatWasCapturedBefore) {
  const Tensor x = ones({8}).sync(), w = full({8, 8}, 0.5f).sync();
  auto step = compile([w](const Tensor& t) { return matmul(t.reshape({1, 8}), w).reshape({8}) * 2 + atanh(t * 0.25); });
  for (int i = 0; i < 3; ++i) step(x);
  Profile profile;
  step(x);
  save(profile, "run.json");
  const std::string trace = contents("run.json");
  EXPECT_EQ(count_of(R"( = matmul(%)", trace), 1) << trace;
  EXPECT_EQ(count_of(R"( = atanh(%)", trace), 1);
  report("run.html", profile);
  EXPECT_THAT(contents("run.html"), HasSubstr("\"op\":\"atanh\""));
}

TEST_F(ProfileTest, TellsCallsFromKernels) {
  const CallsGuard calls;
  auto f = compile([](const Tensor& x) { return tanh(x) * 2 + randn({4, 5}); });
  const Tensor x = ones({4, 5}).sync();
  f(x);
  Profile profile;
  f(x);
  const ProfileSummary summary = profile.summary();
  EXPECT_EQ(summary.replays, 1u);
  std::size_t runs = 0;
  for (const ProfileStep& step : summary.steps) runs += step.runs;
  EXPECT_EQ(runs, 4u) << to_string(summary);
  save(profile, "trace.json");
  EXPECT_THAT(contents("trace.json"), HasSubstr("\"calls\":true"));
}

TEST_F(ProfileTest, SeesOtherThreads) {
  Profile profile;
  std::thread other([] { (ones({8}) + 1).sync(); });
  other.join();
  EXPECT_EQ(profile.summary().syncs, 1u);
}

TEST_F(ProfileTest, TraceHasTracksFlowsAndCounters) {
  const Tensor x = ones({32, 64}).sync(), w = ones({64, 48}).sync();
  for (int i = 0; i < 3; ++i) layer(x, w).sync();
  Profile profile;
  for (int i = 0; i < 40; ++i) layer(x, w).sync();  // one of 32 recorded calls is an event
  save(profile, "run.json");
  const std::string trace = contents("run.json");
  EXPECT_EQ(count_of(R"("cat":"sync")", trace), 40);
  EXPECT_GE(count_of(R"("cat":"recorded")", trace), 3);
  EXPECT_GE(count_of(R"("ph":"C")", trace), 40);
  EXPECT_GE(count_of(R"("ph":"s")", trace), 1);
  EXPECT_EQ(count_of(R"("ph":"s")", trace), count_of(R"("ph":"f")", trace));
  EXPECT_EQ(count_of(R"("dur":-)", trace), 0);
  EXPECT_EQ(count_of(R"("ts":-)", trace), 0);
  EXPECT_EQ(count_of(R"("syncs":40,)", trace), 1);
  EXPECT_EQ(count_of(R"("plan":)", trace) > 0, true);
  EXPECT_EQ(count_of(R"( = matmul(%)", trace), 1);
}

TEST_F(ProfileTest, AdvisesAgainstASyncInALoop) {
  Tensor x = ones({1000}).sync();
  Profile profile;
  int line = 0;
  for (int i = 0; i < 50; ++i) {
    x = x * 0.5 + 1;
    line = __LINE__ + 1;
    if (sum(x).item<float>() < 0) break;
  }
  const ProfileSummary summary = profile.summary();
  ASSERT_FALSE(summary.advice.empty()) << to_string(summary);
  EXPECT_EQ(static_cast<int>(summary.advice[0].where.line()), line) << to_string(summary);
  EXPECT_THAT(summary.advice[0].text, HasSubstr("50 times"));
}

TEST_F(ProfileTest, AdvisesAgainstNewStructures) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = ones({64}).sync();
  Profile profile;
  int line = 0;
  for (int n = 1; n <= 6; ++n) {  // another number of calls, another program
    Tensor y = x;
    for (int i = 0; i < 10 * n; ++i) y = sin(y) + 1;
    line = __LINE__ + 1;
    y.sync();
  }
  set_compile_policy(before);
  const ProfileSummary summary = profile.summary();
  ASSERT_FALSE(summary.advice.empty());
  EXPECT_EQ(static_cast<int>(summary.advice[0].where.line()), line) << to_string(summary);
  EXPECT_THAT(summary.advice[0].text, HasSubstr("6 of 6 syncs here have a new program structure"));
}

TEST_F(ProfileTest, AdvisesAgainstATransposedOperand) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = ones({1024, 768}).sync(), w = ones({768, 1024}).sync();
  const auto scaled = [&] { return x * transpose(w) + 1; };
  scaled().sync();
  Profile profile;
  for (int i = 0; i < 3; ++i) scaled().sync();
  set_compile_policy(before);
  const ProfileSummary summary = summarize(profile.data(), test::kFastMachine);
  std::vector<std::string> texts;
  for (const ProfileAdvice& advice : summary.advice) texts.push_back(advice.text);
  EXPECT_THAT(texts, Contains(HasSubstr("across their memory order"))) << to_string(summary);
}

TEST_F(ProfileTest, AnErrorLeavesTheEngineAsItWas) {
  const Tensor x = ones({8}).sync();
  Profile profile;
  EXPECT_THROW(save(profile, "/no/such/folder/run.json"), FileError);
  EXPECT_THROW(static_cast<void>(x + ones({3})), ShapeError);
  EXPECT_EQ(sum(x + 1).item<float>(), 16);
}

TEST(MachineLimits, AreMeasured) {
  const machine::Limits& limits = machine::limits();
  EXPECT_GT(limits.f32, 1e8);
  EXPECT_GT(limits.bytes_per_second(1 << 20), 1e8);
  EXPECT_GT(limits.least_ns(1e9, 0, DType::f32), limits.least_ns(1e6, 0, DType::f32));
  EXPECT_GT(limits.least_ns(0, 1e12, DType::f32), limits.least_ns(0, 1e9, DType::f32));
}

}  // namespace
}  // namespace fermata
