// The examples that train and simulate, small, on CUDA: both modes there, and the same numbers as on the CPU.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <regex>

#include "codegen_cuda/runtime/device.h"
#include "tests/codegen_cuda/cuda_case.h"

namespace fermata {
namespace {

struct Example {
  std::string name, arguments, numbers;  // `numbers`: a pattern whose first group is a number to compare
  double allowed;
};

class CudaExamples : public ::testing::TestWithParam<Example> {};

#ifdef FERMATA_EXAMPLES_FOLDER
std::string output_of(const std::string& command, int& status) {
  std::string text;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  status = WEXITSTATUS(pclose(pipe));
  return text;
}

std::vector<double> numbers_in(const std::string& text, const std::string& pattern) {
  std::vector<double> all;
  const std::regex wanted(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), wanted), end; at != end; ++at)
    all.push_back(std::stod((*at)[1]));
  return all;
}
#endif

TEST_P(CudaExamples, GiveTheCpusNumbers) {
  std::string failure_reason;
  if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
#ifndef FERMATA_EXAMPLES_FOLDER
  GTEST_SKIP() << "built without examples";
#else
  const Example& e = GetParam();
  const std::string command = FERMATA_EXAMPLES_FOLDER "/" + e.name + " " + e.arguments;
  int here = 0, there = 0;
  const std::string on_cpu = output_of(command, here), on_cuda = output_of(command + " --cuda", there);
  EXPECT_EQ(here, 0) << on_cpu;
  EXPECT_EQ(there, 0) << on_cuda;
  const std::vector<double> wanted = numbers_in(on_cpu, e.numbers), got = numbers_in(on_cuda, e.numbers);
  EXPECT_GE(wanted.size(), 2u) << on_cpu;
  ASSERT_EQ(got.size(), wanted.size()) << on_cuda;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], e.allowed) << on_cuda;
#endif
}
INSTANTIATE_TEST_SUITE_P(Programs, CudaExamples,
                         ::testing::Values(Example{"convnet", "1 64", "loss ([0-9.]+)", 2e-3},
                                           Example{"transformer", "2", "loss ([0-9.]+)", 2e-3},
                                           Example{"shallow_water", "32 20",
                                                   "(?:jvp|gradient|finite difference) ([-0-9.]+)", 1e-9}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fermata
