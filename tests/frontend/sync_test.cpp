// Syncs: what they compute and keep, what a failure leaves, plans that are shared, threads that share tensors.
#include "fermata/sync.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "dispatch/kernel_cache.h"
#include "fermata/fermata.h"
#include "runtime/allocator.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "runtime/plan_cache.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& x) { return x.to_vector<float>(); }

/// In both ways that a graph is played: op by op, and as a plan.
class Sync : public ::testing::TestWithParam<CompilePolicy> {
 protected:
  ~Sync() override { set_compile_policy(policy_); }
  CompilePolicy policy_ = set_compile_policy(GetParam());
  ModeGuard mode_{Mode::compiled};
};
INSTANTIATE_TEST_SUITE_P(Policies, Sync, ::testing::Values(CompilePolicy::never, CompilePolicy::immediate),
                         [](const auto& p) { return p.param == CompilePolicy::never ? "op_by_op" : "compiled"; });

TEST_P(Sync, ComputesWhatHandlesNameAndKeepsTheRestPending) {
  const Tensor x = tensor({1.0, 2.0, 3.0});
  const Tensor a = x + 1, b = a * 2, c = a * 3;
  Tensor unrelated = x - 1;
  b.sync();
  EXPECT_FALSE(a.pending());  // a handle names it, and it was computed on the way
  EXPECT_TRUE(c.pending());
  EXPECT_TRUE(unrelated.pending());
  EXPECT_EQ(floats(c), (Floats{6, 9, 12}));
  EXPECT_EQ(floats(unrelated), (Floats{0, 1, 2}));
}

TEST_P(Sync, SeveralTensorsAreOnePlan) {
  const Tensor x = tensor({1.0, 4.0});
  const Tensor root = sqrt(x), twice = root * 2, sum_of = sum(root);
  const std::uint64_t before = stats().syncs;
  sync({twice, sum_of});
  EXPECT_EQ(stats().syncs, before + 1);
  EXPECT_EQ(floats(twice), (Floats{2, 4}));
  EXPECT_EQ(sum_of.item<float>(), 3);
  EXPECT_EQ(stats().syncs, before + 1);
}

TEST_P(Sync, ViewsAliasAcrossSyncs) {
  Tensor x = zeros({3, 4});
  Tensor row = x[1], corner = slice(row, 0, 2, kNone), turned = transpose(x);
  row += 1;
  EXPECT_EQ(floats(x), (Floats{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}));
  corner *= 5;
  x.sync();
  EXPECT_EQ(floats(row), (Floats{1, 1, 5, 5}));
  turned[3].assign(tensor({7.0, 8.0, 9.0}));
  EXPECT_EQ(floats(corner), (Floats{5, 8}));
  x += 1;
  const Tensor before = x + 0;
  corner.assign(0);
  EXPECT_EQ(floats(before), (Floats{1, 1, 1, 8, 2, 2, 6, 9, 1, 1, 1, 10}));
  EXPECT_EQ(floats(x), (Floats{1, 1, 1, 8, 2, 2, 0, 0, 1, 1, 1, 10}));
  EXPECT_EQ(floats(turned[2]), (Floats{1, 0, 1}));
}

TEST_P(Sync, WhatWasRecordedBeforeAWriteKeepsTheValueItSaw) {
  Tensor x = tensor({1.0, 2.0});
  const Tensor doubled = x * 2;
  x += 10;
  EXPECT_EQ(floats(doubled), (Floats{2, 4}));
  EXPECT_EQ(floats(x), (Floats{11, 12}));
}

// ---- Failures -------------------------------------------------------------------------------------------------------

TEST_P(Sync, OutOfMemoryLeavesEverythingPendingAndCanBeTriedAgain) {
  constexpr std::int64_t kCount = 3 << 20;
  const Tensor x = full({kCount}, 2.0).sync();
  const Tensor y = x * 3, z = sum(y) + 1;
  trim_cache();
  const std::size_t limit = set_memory_limit(1);
  try {
    sync({y, z});
    set_memory_limit(limit);
    FAIL() << "there was memory";
  } catch (const OutOfMemoryError& error) {
    set_memory_limit(limit);
    EXPECT_EQ(error.code(), 3001);
  }
  EXPECT_TRUE(y.pending());
  EXPECT_TRUE(z.pending());
  EXPECT_EQ(x[0].item<float>(), 2);
  sync({y, z});
  EXPECT_EQ(y[kCount - 1].item<float>(), 6);
  EXPECT_EQ(z.item<float>(), 6.0f * kCount + 1);
}

TEST_P(Sync, ErrorsThatDependOnDataLeaveTheRestUsable) {
  const Tensor x = tensor({1.0, 2.0, 3.0});
  Tensor index = tensor({0, 7});
  const Tensor y = x + 1, bad = take(y, index) * 2;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(bad.sync(), IndexError);
    EXPECT_TRUE(bad.pending());
  }
  EXPECT_EQ(floats(y), (Floats{2, 3, 4}));
  index.assign(tensor({0, 2}));
  EXPECT_EQ(floats(take(y, index) * 2), (Floats{4, 8}));
}

// ---- Threads --------------------------------------------------------------------------------------------------------

TEST_P(Sync, ThreadsShareWhatIsPending) {
  constexpr int kRounds = 60;
  const Tensor x = arange(100, DType::f32).sync();
  for (int round = 0; round < kRounds; ++round) {
    const Tensor shared = exp(x * 0.01) + round, left = shared * 2, right = sum(shared) - left;
    Tensor mine, yours;
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ++ready;
      while (ready != 2) std::this_thread::yield();
    };
    std::thread other([&] {
      set_mode(Mode::compiled);
      meet();
      yours = left + shared;
      yours.sync(), right.sync();
    });
    meet();
    mine = right * shared;
    mine.sync(), left.sync();
    other.join();
    const Floats s = floats(shared), l = floats(left), r = floats(right), m = floats(mine), y = floats(yours);
    for (std::size_t i = 0; i < s.size(); ++i) {
      ASSERT_EQ(l[i], s[i] * 2);
      ASSERT_EQ(m[i], r[i] * s[i]);
      ASSERT_EQ(y[i], l[i] + s[i]);
    }
  }
}

TEST_P(Sync, ThreadsBuildOnWhatAnotherThreadRecorded) {
  Tensor chain = zeros({16});
  for (int turn = 0; turn < 40; ++turn) {
    std::thread([&] {
      set_mode(Mode::compiled);
      chain += 1;
      if (turn % 7 == 0) chain.sync();
    }).join();
  }
  EXPECT_EQ(floats(chain), Floats(16, 40));
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

class Plans : public ::testing::Test {
 protected:
  Plans() { clear_compile_caches(); }
  ~Plans() override {
    PlanCache::instance().hash_mask = ~0ull;
    clear_compile_caches();
    set_compile_policy(policy_);
  }
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
  ModeGuard mode_{Mode::compiled};
};

TEST_F(Plans, SizesAndNumbersAreArguments) {
  const auto run = [](std::int64_t rows, std::int64_t columns, float factor) {
    const Tensor x = full({rows, columns}, 2.0).sync();
    return sum(x * factor + 1, 1, true) * slice(x, 1, 0, columns - 1);
  };
  run(8, 16, 2).sync(), run(8, 48, 2).sync();  // short rows may take other kernels than long ones
  const Stats before = stats();
  for (const auto& [rows, columns, factor] :
       {std::tuple{3, 5, 2.5f}, {100, 7, -1.0f}, {2, 64, 0.0f}, {5000, 33, 1e10f}}) {
    const Tensor y = run(rows, columns, factor);
    EXPECT_EQ(y.shape(), (Shape{rows, columns - 1}));
    const float want = 2 * static_cast<float>(columns) * (2 * factor + 1);
    EXPECT_NEAR(floats(y).back(), want, 1e-5f * std::abs(want));
  }
  const Stats after = stats();
  EXPECT_EQ(after.plans_compiled, before.plans_compiled);
  EXPECT_EQ(after.plan_misses, before.plan_misses);
  EXPECT_EQ(after.kernels_compiled, before.kernels_compiled);
  EXPECT_GT(after.plan_hits, before.plan_hits);
}

/// What is fused for long rows leaves most lanes empty where rows are short.
TEST_F(Plans, ReductionsHaveTheirOwnByTheirSizes) {
  set_compile_policy(CompilePolicy::immediate);
  const auto steps = [](std::int64_t rows, std::int64_t columns) {
    const Tensor x = ones({rows, columns}).sync();
    EXPECT_EQ(max(x, {1}).sync().to_vector<float>(), Floats(static_cast<std::size_t>(rows), 1));
    const std::string report = explain(max(x, {1}));
    return report.substr(report.find("step 0"), report.substr(report.find("step 0")).find('\n'));
  };
  for (int i = 0; i < 2; ++i) {  // whichever was first
    EXPECT_EQ(steps(1000, 1000).find("call"), std::string::npos);
    EXPECT_NE(steps(30000, 37).find("call max"), std::string::npos);
  }
  const std::uint64_t misses = stats().plan_misses;
  for (const std::int64_t rows : {900, 1000, 1017}) steps(rows, 1000);
  for (const std::int64_t columns : {33, 37, 50}) steps(30000, columns);
  EXPECT_EQ(stats().plan_misses, misses);
}

TEST_F(Plans, ShortRowsHaveTheirOwn) {
  const auto run = [](std::int64_t rows, std::int64_t columns) {
    const Tensor x = rand({rows, columns}).sync(), y = sum(exp(x), 0);
    const std::string text = explain(y);
    y.sync();
    return text.find("rows are too short to fill vectors") != text.npos;
  };
  EXPECT_FALSE(run(20000, 300));
  EXPECT_TRUE(run(200000, 3));
  const Stats before = stats();
  EXPECT_FALSE(run(10000, 400));
  EXPECT_TRUE(run(300000, 5));
  EXPECT_EQ(stats().plans_compiled, before.plans_compiled);
}

TEST_F(Plans, NewStructuresArePlayedOnceAndThenCompiled) {
  set_compile_policy(CompilePolicy::second_sight);
  const Tensor x = tensor({1.0f, 4.0f});
  std::uint64_t plays = stats().call_plays, plans = stats().plans_compiled;
  EXPECT_EQ(floats(sqrt(x) + 3), (Floats{4, 5}));
  EXPECT_EQ(stats().call_plays, plays + 1);
  EXPECT_EQ(stats().plans_compiled, plans);
  EXPECT_EQ(floats(sqrt(x) + 5), (Floats{6, 7}));
  EXPECT_EQ(stats().plans_compiled, plans + 1);
  EXPECT_EQ(floats(sqrt(x) + 7), (Floats{8, 9}));
  EXPECT_EQ(stats().plans_compiled, plans + 1);
  EXPECT_EQ(stats().call_plays, plays + 1);
}

TEST_F(Plans, WhichHandlesAreAliveIsPartOfTheStructure) {
  const Tensor x = tensor({1.0f, 4.0f});
  const auto run = [&](bool keep) {
    Tensor root = sqrt(x), y = root + 1;
    if (!keep) root = Tensor();
    y.sync();
    if (keep) {
      EXPECT_FALSE(root.pending());
      EXPECT_EQ(floats(root), (Floats{1, 2}));
    }
    EXPECT_EQ(floats(y), (Floats{2, 3}));
  };
  const std::uint64_t misses = stats().plan_misses;
  for (int i = 0; i < 3; ++i) run(false), run(true);
  EXPECT_EQ(stats().plan_misses, misses + 2);
  EXPECT_NE(stats().last_plan_miss, "");
}

/// Nine calls whose ops are the bits of `which`: 512 structures.
Tensor structure(const Tensor& x, unsigned which) {
  Tensor y = x;
  for (unsigned bit = 0; bit < 9; ++bit) y = (which >> bit & 1) != 0 ? y + 1 : y * 2;
  return y;
}
float structure_value(float x, unsigned which) {
  for (unsigned bit = 0; bit < 9; ++bit) x = (which >> bit & 1) != 0 ? x + 1 : x * 2;
  return x;
}

TEST_F(Plans, TemporariesOfAStatementAreNotKept) {
  set_compile_policy(CompilePolicy::immediate);
  constexpr std::int64_t kElements = 4 << 20;
  const Tensor x = ones({kElements}).sync();
  (((x + 1) * 2 - 3) * x).sync();
  reset_peak_memory();
  const std::uint64_t before = stats().peak_bytes;
  const Tensor y = (((x + 1) * 2 - 3) * x).sync();
  EXPECT_LT(stats().peak_bytes - before, 6 * kElements);  // y and no more
  EXPECT_EQ(y.to_vector<float>()[7], 1);
}

TEST_F(Plans, TemporariesOfReductionsAndMembersAreNotKept) {
  set_compile_policy(CompilePolicy::immediate);
  constexpr std::int64_t kRows = 1 << 12, kElements = kRows << 10;
  const Tensor x = ones({kRows, 1 << 10}).sync();
  const std::pair<const char*, std::function<Tensor()>> programs[] = {
      {"sum", [&] { return sum(x * 2 + 1).sync(); }},
      {"max of an axis", [&] { return max(x * 2, {0}).sync(); }},
      {"mean", [&] { return mean(square(x - 2)).sync(); }},
      {"var", [&] { return var(x * 2, {1}).sync(); }},
      {"logsumexp", [&] { return logsumexp(x * 2, {1}).sync(); }},
      {"sum of a softmax", [&] { return sum(softmax(x * 2), {1}).sync(); }},
      {"norm", [&] { return linalg::vector_norm(x - 3).sync(); }},
      {"sum of a cast", [&] { return sum(astype(x * 2, DType::f64)).sync(); }},
      {"members",
       [&] { return (x - 1).mul(2).exp().add(x).clip(0, 5).neg().astype(DType::f64).mean({1}).sum().sync(); }},
      {"operands of members", [&] { return (x - 1).add(x * 2).mul(clamp(x * 3, 0, 2)).sum().sync(); }},
      {"powers", [&] { return (pow(x - 1, 2) + pow(x - 2, 3) + pow(x - 3, 1.5)).sum().sync(); }},
      {"views",
       [&] {
         return sum(transpose(reshape(x * 2, {-1, 2048})), {0, 1}).sync();
       }},
      {"members that are views",
       [&] { return (x * 2).reshape(-1, 2048).flatten().view(64, -1).mT().unsqueeze(0).squeeze().max().sync(); }},
      {"normalizations", [&] { return rms_norm(layer_norm(x * 2)).sum({1}).sync(); }},
      {"other names", [&] { return absolute(x * 2).sum().sync(); }},
      {"members of rows", [&] { return (x * 2).softmax().log_softmax().std({1}).norm().sync(); }},
  };
  for (const auto& [name, program] : programs) {
    program();
    reset_peak_memory();
    const std::uint64_t before = stats().peak_bytes;
    const Tensor y = program();
    EXPECT_LT(stats().peak_bytes - before, kElements) << name;
  }
  Tensor named = x * 2;
  EXPECT_EQ(sum(named).item<float>(), 2.0F * kElements);
  EXPECT_EQ(named.exp().sum().dtype(), DType::f32);
  EXPECT_TRUE(named.defined());  // it was no temporary
  EXPECT_EQ(max(std::move(named)).item<float>(), 2);
  EXPECT_FALSE(named.defined());  // NOLINT(bugprone-use-after-move)
}

TEST_F(Plans, TakingATemporaryOverLeavesOthersAlone) {
  Tensor x = ones({3}) * 2;
  const Tensor same = x, moved = std::move(x) + 1;  // another handle names the value
  EXPECT_EQ(floats(same), (Floats{2, 2, 2}));
  EXPECT_EQ(floats(moved), (Floats{3, 3, 3}));
  Tensor wants = full({3}, 2.0).requires_grad(true);
  const Tensor loss = sum((wants * 3) * (wants + 1));  // temporaries that backward() reads
  loss.backward();
  EXPECT_EQ(floats(wants.grad()), (Floats{15, 15, 15}));
  Tensor alone = ones({3}) * 5;
  EXPECT_EQ(floats(std::move(alone) * 2), (Floats{10, 10, 10}));
  EXPECT_THROW(alone + 1, ValueError);  // it was given away
}

TEST_F(Plans, AResultThatTakesATemporaryOverIsANewTensor) {
  Tensor a = ones({3}) * 2, b = ones({3}) * 5;
  a += 1;
  EXPECT_EQ(a.version(), 1u);
  const Tensor both = std::move(a) * std::move(b);
  EXPECT_FALSE(a.defined() || b.defined());
  EXPECT_EQ(both.version(), 0u);
  EXPECT_EQ(floats(both), (Floats{15, 15, 15}));
  Tensor c = arange(0, 4) * 1.5;
  const Tensor same = c,
               less = 2 > std::move(c);  // a number on the left, a result of another dtype; `same` keeps the value
  EXPECT_EQ(less.dtype(), DType::boolean);
  EXPECT_EQ(less.to_vector<bool>(), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(floats(8 - same), (Floats{8, 6.5, 5, 3.5}));
  EXPECT_THROW((ones({3}) * 2) + (ones({4}) * 2), ShapeError);
  EXPECT_EQ((2 - arange(0, 3)).dtype(), arange(0, 3).dtype());
  EXPECT_EQ((0.5 - arange(0, 3)).dtype(), DType::f32);
}

TEST_F(Plans, ShortRunsGetWideCodeToo) {
  set_compile_policy(CompilePolicy::immediate);
  wait_for_background();  // code of earlier tests would come into the folder
  const std::string kept =
      DiskCache::instance().set_directory(::testing::TempDir() + "fermata_wide_code" + std::to_string(::getpid()));
  DiskCache::instance().clear();
  const Tensor x = randn({1 << 14}).sync();
  const auto once = [&] { return (tanh(tanh(tanh(x))) * sigmoid(x)).sync(); };
  const Floats first = floats(once());
  const std::size_t narrow = DiskCache::instance().entries().size();
  if (narrow != 0) {                        // there is a compiler
    for (int i = 0; i < 3000; ++i) once();  // each is too short for two threads
    wait_for_background();
    EXPECT_EQ(DiskCache::instance().entries().size(), narrow + 1);
    EXPECT_EQ(floats(once()), first);
  }
  DiskCache::instance().clear();
  DiskCache::instance().set_directory(kept);
}

TEST_F(Plans, ProductsLieWhereTheirKernelWrites) {
  set_compile_policy(CompilePolicy::immediate);
  const Tensor a = randn({1024, 64}).sync(), b = randn({64, 4096}).sync(), c = randn({4096}).sync(),
               d = randn({1024, 4096}).sync();
  const auto plain = [&] { return relu(matmul(a, b) + c); };
  const auto gated = [&] {
    const Tensor m = matmul(a, b);
    return m * sigmoid(m);
  };
  const auto less = [&] { return plain() - d; };  // the result might also lie where d does
  const auto overwriting = [&] {
    Tensor e = d * 1;
    e.sync();
    return plain() - std::move(e);
  };
  const std::vector<std::function<Tensor()>> programs{plain, gated, less, overwriting};
  std::vector<Floats> got;
  for (const auto& program : programs) got.push_back(floats(program()));
  reset_peak_memory();
  const std::uint64_t before = stats().peak_bytes;
  const Tensor y = plain().sync();
  EXPECT_LT(stats().peak_bytes - before, 24u << 20);  // y has 16 MiB, and a product beside it would have as many
  const ModeGuard eager(Mode::eager);
  for (std::size_t p = 0; p < programs.size(); ++p) {
    const Floats wanted = floats(programs[p]());
    for (std::size_t i = 0; i < wanted.size(); i += 97) ASSERT_NEAR(got[p][i], wanted[i], 1e-3) << p << " at " << i;
  }
}

TEST_F(Plans, CollidingHashesAreToldApart) {
  set_compile_policy(CompilePolicy::never);
  const Tensor x = tensor({3.0f});
  for (const std::uint64_t mask : {0ull, 1ull}) {
    PlanCache::instance().clear();
    PlanCache::instance().hash_mask = mask;
    for (int round = 0; round < 2; ++round)
      for (unsigned which = 0; which < 200; ++which)
        ASSERT_EQ(structure(x, which).item<float>(), structure_value(3, which)) << which;
    EXPECT_EQ(PlanCache::instance().size(), 200u);
  }
}

TEST_F(Plans, CollidingHashesRunTheRightCompiledPlan) {
  const Tensor x = tensor({3.0f});
  PlanCache::instance().hash_mask = 0;
  for (int round = 0; round < 2; ++round)
    for (unsigned which = 0; which < 12; ++which)
      ASSERT_EQ(structure(x, which).item<float>(), structure_value(3, which)) << which;
}

TEST_F(Plans, TheCacheIsBounded) {
  set_compile_policy(CompilePolicy::never);
  const Tensor x = tensor({1.0f});
  for (unsigned count = 1; count <= 10; ++count) {
    for (unsigned which = 0; which < 512; ++which) {
      Tensor y = structure(x, which);
      for (unsigned i = 0; i < count; ++i) y = -y;
      ASSERT_EQ(y.item<float>(), structure_value(1, which) * (count % 2 == 0 ? 1.0f : -1.0f));
    }
    EXPECT_LE(PlanCache::instance().size(), PlanCache::instance().limit());
  }
  EXPECT_GT(PlanCache::instance().size(), PlanCache::instance().limit() / 4);
}

TEST_F(Plans, ConstantsOfNarrowDTypesAreRoundedInsideKernels) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = zeros({1, 3}).sync();
  for (const DType t : {DType::bf16, DType::f16})
    for (int i = 0; i < 3; ++i) {  // at first and at second sight
      const Tensor y = full({2, 3}, 0.001, t).astype(DType::f32) + x;
      EXPECT_EQ(y.to_vector<float>()[0], full({1}, 0.001, t).to_vector<float>()[0]) << name(t);
    }
}

TEST_F(Plans, RunInTurnKeepTheirSizes) {
  const ModeGuard compiled(Mode::compiled);
  std::vector<Tensor> inputs;
  for (std::int64_t n = 1; n <= 12; ++n) inputs.push_back(full({n}, static_cast<double>(n), DType::f32).sync());
  for (int round = 0; round < 4; ++round)  // more structures than a thread keeps bound, each with sizes of its own
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      Tensor y = inputs[(k + static_cast<std::size_t>(round)) % inputs.size()];
      for (std::size_t i = 0; i <= k; ++i) y = y + 1;
      EXPECT_EQ(sum(y).item<float>(),
                static_cast<float>(y.size(0)) * static_cast<float>(y.size(0) + static_cast<std::int64_t>(k) + 1));
    }
}

}  // namespace
}  // namespace fermata
