// Seeing inside: dumps, explanations, counters, comparisons, and the warning where a kernel cannot be compiled.
#include "fermata/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dispatch/kernel_cache.h"
#include "dispatch/measured_choices.h"
#include "fermata/fermata.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "ir/kernel.h"
#include "runtime/calibration_wish.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Floats = std::vector<float>;

class Inspect : public ::testing::Test {
 protected:
  ~Inspect() override {
    before_compile = nullptr;
    set_compile_policy(policy_);
    clear_compile_caches();
  }
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
  ModeGuard mode_{Mode::compiled};
};

TEST_F(Inspect, DumpsAreProgramsThatReadBack) {
  const Tensor x = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}});
  const Tensor y = sum(x * 2 + 1, 1);
  const std::string text = dump_ir(y);
  EXPECT_EQ(to_string(parse_graph(text)),
            "%0 = input : f32[2, 2]\n"
            "%1 = multiply(%0, 2) : f32[2, 2]\n"
            "%2 = add(%1, 1) : f32[2, 2]\n"
            "%3 = sum(%2) {axes=[1], keepdims=false} : f32[2]\n"
            "return %3\n");
  EXPECT_THAT(text, HasSubstr("@frontend/inspect_test.cpp:"));
  EXPECT_TRUE(y.pending());
  y.sync();
  EXPECT_EQ(to_string(parse_graph(dump_ir(y))), "%0 = input : f32[2]\nreturn %0\n");
}

TEST_F(Inspect, ExplanationsShowThePlanAndComputeNothing) {
  const Tensor x = ones({8, 16}).sync(), w = ones({16, 4}).sync();
  const Tensor y = softmax(matmul(relu(x), w));
  const std::uint64_t syncs = stats().syncs;
  const std::string text = explain(y);
  EXPECT_TRUE(y.pending());
  EXPECT_EQ(stats().syncs, syncs);
  for (const char* part : {"recorded", "matmul", "choices", "plan", "row kernel", "call matmul", "passes", "fuse"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("0x")));
  EXPECT_THAT(text, HasSubstr("candidates: simd (call), jit (emit, fuses)\n"));  // without lines of the engine
}

TEST_F(Inspect, ExplanationsShowWhatWasMeasuredBesideWhatWasPredicted) {
  const CalibrationWish before = set_calibration_wish(CalibrationWish::if_unknown);
  set_choice_clock([] { return std::int64_t{0}; });
  const Tensor x = ones({500, 330}).sync(), w = ones({330, 600}).sync();  // no other test has these sizes
  EXPECT_THAT(explain(matmul(x, w)), Not(HasSubstr("measured")));
  for (const Mode mode : {Mode::eager, Mode::compiled, Mode::eager}) {
    const ModeGuard guard(mode);
    matmul(x, w).sync();
  }
  const std::string text = explain(matmul(x, w));
  const std::size_t first = text.find(" (library, ");
  if (text.find(" us", first) != text.rfind(" us)")) {  // there are several kernels for them
    EXPECT_THAT(text, HasSubstr(" us, measured 0.0 us"));
  }
  EXPECT_THAT(explain(matmul(x, transpose(ones({600, 330}).sync()))), Not(HasSubstr("measured")));
  set_calibration_wish(CalibrationWish::never);
  EXPECT_THAT(explain(matmul(x, w)), Not(HasSubstr("measured")));
  set_choice_clock(nullptr);
  set_calibration_wish(before);
}

TEST_F(Inspect, CountersCount) {
  const Tensor x = tensor({1.0f, 2.0f}).sync();
  clear_compile_caches();
  const Stats before = stats();
  for (int i = 0; i < 3; ++i) (tanh(x) * 3).sync();
  const Stats after = stats();
  EXPECT_EQ(after.records, before.records + 6);
  EXPECT_EQ(after.syncs, before.syncs + 3);
  EXPECT_EQ(after.plan_misses, before.plan_misses + 1);
  EXPECT_EQ(after.plan_hits, before.plan_hits + 2);
  EXPECT_EQ(after.plans_compiled, before.plans_compiled + 1);
  EXPECT_EQ(after.kernels_compiled, before.kernels_compiled + 1);
  EXPECT_GT(after.compile_ms, before.compile_ms);
  EXPECT_GT(after.live_bytes, 0u);
  EXPECT_GE(after.peak_bytes, after.live_bytes);
  for (const char* part : {"recorded calls", "syncs", "plans", "kernels"})
    EXPECT_THAT(to_string(after), HasSubstr(part));
}

TEST_F(Inspect, ReasonsOfSyncsAreCounted) {
  const auto total = [] {
    std::uint64_t n = 0;
    for (const auto& [reason, count] : stats().sync_reasons) {
      EXPECT_NE(reason, "");
      n += count;
    }
    return n;
  };
  const std::uint64_t before = total();
  const Tensor x = tensor({1.0f, 2.0f});
  static_cast<void>(sum(x + 1).item<float>());
  static_cast<void>((x + 1).to_vector<float>());
  static_cast<void>(to_string(x * 2));
  EXPECT_GE(total(), before + 2);
}

TEST_F(Inspect, ModesAreComparedOpByOp) {
  const Tensor x = randn({64, 64}).sync();
  const ModeComparison c = compare_modes([](const Tensor& t) { return softmax(exp(t) * 2); }, x);
  std::vector<std::string> ops;
  for (const ModeComparison::Row& row : c.rows) {
    ops.push_back(row.op);
    EXPECT_GE(row.calls, 1u);
    EXPECT_GT(row.eager_us, 0);
  }
  EXPECT_THAT(ops, ::testing::IsSupersetOf({"exp", "multiply", "max", "sum", "reciprocal", "subtract"}));
  EXPECT_EQ(c.kernels, 1u);
  EXPECT_GT(c.eager_us, 0);
  EXPECT_GT(c.compiled_us, 0);
  EXPECT_LE(c.record_us, c.compiled_us);
  EXPECT_THAT(to_string(c), HasSubstr("multiply"));
  ASSERT_EQ(c.steps.size(), 1u);
  EXPECT_THAT(c.steps[0].what, ::testing::EndsWith(" [64, 64]"));
  EXPECT_EQ(c.steps[0].runs, 1u);
  EXPECT_GT(c.steps[0].us, 0);
  EXPECT_THAT(to_string(c), HasSubstr(c.steps[0].what));
}

TEST_F(Inspect, StepsThatRunTogetherAreTimedTogether) {
  const Tensor x = randn({128, 128}).sync();
  const ModeComparison c = compare_modes([](const Tensor& t) { return exp(matmul(t, t)); }, x);
  ASSERT_EQ(c.steps.size(), 1u);
  EXPECT_EQ(c.steps[0].what, "matmul [128, 128] [128, 128] -> [128, 128] with exp on its tiles");
}

TEST_F(Inspect, KernelsOfAPlanAreCompiledSideBySideAndOnce) {
  const Tensor x = randn({40, 30}).sync(), y = randn({40, 30}).sync();
  const int threads = thread_count();
  std::vector<std::uint64_t> compiled;
  for (const int n : {1, 2, 4}) {
    set_thread_count(n);
    clear_compile_caches();
    const Stats before = stats();
    const std::vector<Tensor> results{softmax(x, 1), softmax(y, 1), softmax(x, 0), sum(exp(x), 0), cos(y.mT())};
    sync(results);
    compiled.push_back(stats().kernels_compiled - before.kernels_compiled);
    EXPECT_EQ(stats().compile_failures, before.compile_failures);
    EXPECT_NEAR(sum(results[2]).item<float>(), 30, 1e-4);
  }
  set_thread_count(threads);
  EXPECT_GT(compiled[0], 2u);
  EXPECT_EQ(compiled[1], compiled[0]);
  EXPECT_EQ(compiled[2], compiled[0]);
}

// ---- Kernels that cannot be compiled --------------------------------------------------------------------------------

void fail_for_square_roots(const Kernel& kernel) {
  if (to_string(kernel).find("sqrt") != std::string::npos) throw InternalError(9999, "planted failure");
}

TEST_F(Inspect, ANodeThatCannotBeCompiledRunsAloneAsACall) {
  clear_compile_caches();
  before_compile = &fail_for_square_roots;
  const Tensor x = tensor({{1.0f, 4.0f}, {9.0f, 16.0f}});
  const Tensor scaled = x * 4;
  const Tensor root = sqrt(scaled);
  const int line = __LINE__ - 1;
  const Tensor y = sum(root + 1, 1);
  const std::uint64_t failures = stats().compile_failures;
  ::testing::internal::CaptureStderr();
  y.sync();
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(y.to_vector<float>(), (Floats{8, 16}));
  EXPECT_EQ(root.to_vector<float>(), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(warning, "fermata warning: sqrt at frontend/inspect_test.cpp:" + std::to_string(line) +
                         " runs as a call: its kernel could not be compiled\n  planted failure\n");
  EXPECT_EQ(stats().compile_failures, failures + 2);  // of the group, and of the node alone

  // The others are kernels, and the plan is kept: nothing is tried or said again.
  ::testing::internal::CaptureStderr();
  const Tensor scaled_again = x * 5, root_again = sqrt(scaled_again), again = sum(root_again + 2, 1);
  again.sync();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_NEAR(again.to_vector<float>()[0], std::sqrt(5.0) + std::sqrt(20.0) + 4, 1e-5);
}

TEST_F(Inspect, AFailingCompileShowsInTheExplanation) {
  clear_compile_caches();
  before_compile = &fail_for_square_roots;
  ::testing::internal::CaptureStderr();
  const std::string text = explain(sqrt(tensor({1.0f, 4.0f}) * 4) + 1);
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("call sqrt"));
  EXPECT_THAT(text, HasSubstr("its kernel could not be compiled"));
  EXPECT_THAT(text, HasSubstr("step 0: kernel multiply"));
}

TEST_F(Inspect, WhereNothingCompilesEverythingIsACall) {
  clear_compile_caches();
  before_compile = [](const Kernel&) { throw InternalError(9999, "planted failure"); };
  ::testing::internal::CaptureStderr();
  const Tensor x = tensor({{1.0f, 4.0f}, {9.0f, 16.0f}});
  const Tensor y = softmax(transpose(x) * 2) + x[0];
  const Floats got = y.to_vector<float>();
  ::testing::internal::GetCapturedStderr();
  const ModeGuard eager(Mode::eager);
  EXPECT_EQ(got, (softmax(transpose(x) * 2) + x[0]).to_vector<float>());
}

}  // namespace
}  // namespace fermata
