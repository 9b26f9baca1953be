// The peaks of multiply-adds: they are measured, and by instructions that FERMATA_CPU permits.
#include "runtime/machine_limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace fermata::machine {
namespace {

TEST(MachineLimits, PeaksDoTheirOperations) {
  for (const Peak& peak : peaks()) {
    constexpr std::size_t kRounds = 300'000;
    const auto start = std::chrono::steady_clock::now();
    const double operations = peak.run(kRounds);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_GE(operations, 2.0 * kRounds) << peak.name;
    EXPECT_LT(operations, 1e15 * seconds) << peak.name << ": no core does as many; the loop is gone";
  }
}

[[noreturn]] void say_instructions() {
  for (const Peak& peak : peaks()) {
    std::fputs(std::string(peak.instructions).c_str(), stderr);
    std::fputs(peak.run(1) > 0 ? ";" : "!", stderr);
  }
  std::exit(0);
}

void expect(const char* cpu, const char* instructions) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("FERMATA_CPU", cpu, 1);  // read when the process starts: the test runs in a new one
  EXPECT_EXIT(say_instructions(), testing::ExitedWithCode(0), instructions) << cpu;
  unsetenv("FERMATA_CPU");
}

TEST(MachineLimitsDeathTest, PeaksKeepToTheInstructionSet) {
  expect("baseline", "^scalars;scalars;scalars;$");
  expect("avx2", "^(scalars;scalars;scalars;|AVX2;AVX2;AVX2, pairs;)$");
  expect("avx512", "^(scalars|AVX2|AVX-512);[^M]*;[^M]*;$");  // no AMX
}

}  // namespace
}  // namespace fermata::machine
