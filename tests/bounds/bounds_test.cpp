// What a process keeps is bounded, however many structures, threads and files it has seen.
//
// FERMATA_BOUND_COUNT: how many new structures a test makes, by default 120.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "dispatch/kernel_cache.h"
#include "fermata/fermata.h"
#include "runtime/plan_cache.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

std::size_t structure_count() {
  const char* const text = std::getenv("FERMATA_BOUND_COUNT");
  return text == nullptr ? 120 : std::strtoull(text, nullptr, 10);
}

/// A structure of its own for each number, and its value at 0.25.
Tensor structure(Tensor x, std::size_t which) {
  for (; which != 0; which /= 3) {
    if (which % 3 == 0) x = x * x;
    if (which % 3 == 1) x = x + 1;
    if (which % 3 == 2) x = maximum(x, 0.5);
  }
  return x * 2;
}
float structure_value(std::size_t which) {
  float x = 0.25f;
  for (; which != 0; which /= 3) {
    if (which % 3 == 0) x = x * x;
    if (which % 3 == 1) x = x + 1;
    if (which % 3 == 2) x = std::max(x, 0.5f);
  }
  return x * 2;
}

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}
/// Mappings of machine code that come from no file.
std::size_t code_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find(" r-xp ") != line.npos && line.find('/') == line.npos && line.find('[') == line.npos) ++count;
  return count;
}

class Bounds : public ::testing::Test {
 protected:
  static constexpr std::size_t kPlans = 16, kKernels = 24;
  Bounds()
      : mode_(Mode::compiled),
        policy_(set_compile_policy(CompilePolicy::immediate)),
        plans_(PlanCache::instance().set_limit(kPlans)),
        kernels_(set_kernel_limit(kKernels)) {
    clear_compile_caches();
  }
  ~Bounds() override {
    PlanCache::instance().set_limit(plans_), set_kernel_limit(kernels_);
    set_compile_policy(policy_);
    clear_compile_caches();
  }

 private:
  const ModeGuard mode_;
  const CompilePolicy policy_;
  const std::size_t plans_, kernels_;
};

TEST_F(Bounds, NewStructuresReplaceOldOnes) {
  const Tensor x = full({64}, 0.25).sync();
  std::size_t most_mappings = 0, files = 0;
  const std::size_t count = std::max<std::size_t>(structure_count(), 100);
  for (std::size_t which = 0; which < count; ++which) {
    ASSERT_EQ(structure(x, which).to_vector<float>()[63], structure_value(which)) << which;
    ASSERT_LE(PlanCache::instance().size(), kPlans);
    ASSERT_LE(kernel_cache_size().kernels, kKernels);
    most_mappings = std::max(most_mappings, code_mappings());
    if (which == 50) files = entries_of("/proc/self/fd");
  }
  // Plans that threads have run last keep their kernels, also where the caches have let them go.
  constexpr std::size_t kKeptByThread = 64 + 16;
  EXPECT_LE(most_mappings, kPlans + kKernels + kKeptByThread);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
  clear_compile_caches();
  EXPECT_EQ(PlanCache::instance().size(), 0u);
  EXPECT_EQ(kernel_cache_size().code_bytes, 0u);
}

TEST_F(Bounds, ClearedCachesLeaveNoCode) {
  const Tensor x = full({64}, 0.25).sync();
  clear_compile_caches();
  const std::size_t before = code_mappings();
  for (std::size_t which = 100; which < 110; ++which) structure(x, which).sync();
  std::thread([&] { structure(x, 111).sync(); }).join();  // what threads have run goes with them
  if (kernel_cache_size().kernels == 0) GTEST_SKIP() << "nothing is compiled here";
  EXPECT_GT(code_mappings(), before);
  clear_compile_caches();
  EXPECT_EQ(code_mappings(), before);
  EXPECT_EQ(structure(x, 100).to_vector<float>()[0], structure_value(100));
}

TEST_F(Bounds, AKernelThatIsUsedStays) {
  const Tensor x = full({64}, 0.25).sync();
  structure(x, 1).sync();
  if (kernel_cache_size().kernels == 0) GTEST_SKIP() << "nothing is compiled here";
  for (std::size_t which = 100; which < 100 + 3 * kKernels; ++which) {
    structure(x, which).sync();
    PlanCache::instance().clear();
    const std::uint64_t compiled = counters.kernels_compiled;
    ASSERT_EQ(structure(x, 1).to_vector<float>()[0], structure_value(1));
    ASSERT_EQ(counters.kernels_compiled, compiled) << "after " << which;
    PlanCache::instance().clear();
  }
}

TEST_F(Bounds, ThreadsThatHaveEndedLeaveNothing) {
  const Tensor x = full({64}, 0.25).sync();
  const auto run_threads = [&](int count) {
    for (int i = 0; i < count; ++i)
      std::thread([&] { EXPECT_EQ(sum(structure(x, 7)).item<float>(), 64 * structure_value(7)); }).join();
  };
  run_threads(2);
  const std::size_t threads = entries_of("/proc/self/task"), files = entries_of("/proc/self/fd");
  const std::size_t mappings = code_mappings();
  run_threads(40);
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
  EXPECT_EQ(code_mappings(), mappings);
}

}  // namespace
}  // namespace fermata
