// Programs in a process of their own, from C and from Python, with libfermata_run and nothing else.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "fermata/export.h"
#include "fermata/fermata.h"
#include "tests/run/program_folder.h"

namespace fermata {
namespace {

class ExportedProcess : public ProgramFolder {
 protected:
  struct Outcome {
    int status;
    std::string out;
  };
  static Outcome run(const std::string& line) {
    std::FILE* const pipe = popen((line + " 2>&1").c_str(), "r");
    std::string out;
    std::array<char, 4096> block;
    for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe)) > 0;) out.append(block.data(), n);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
  }
  Outcome run_in_c(const std::string& size, const std::string& settings = "") const {
    return run(settings + " '" FERMATA_RUNS_PROGRAM "' '" + path() + "' " + size);
  }
};

/// What the programs feed: 0, 1/64, 2/64, ...
Tensor counted(const IntegerList& sizes) {
  const Shape shape = zeros(sizes).shape();
  return reshape(arange(element_count(shape), DType::f32) / 64, sizes);
}

std::vector<float> elements_of(const std::string& line) {
  std::istringstream in(line.substr(line.find(':') + 1));
  std::vector<float> values;
  for (float v; in >> v;) values.push_back(v);
  return values;
}

TEST_F(ExportedProcess, NeedsNoEngineAndNoCompiler) {
  manual_seed(2);
  const Tensor w = randn({6, 4});
  const auto f = [&](const Tensor& x) { return softmax(matmul(x, w) + 0.5, -1); };
  export_program(path(), {.dynamic = {{"input0", 0, "rows"}}}, f, randn({3, 6}));
  for (const std::int64_t rows : {1, 3, 11}) {
    const Outcome outcome = run_in_c(std::to_string(rows));
    ASSERT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_TRUE(outcome.out.starts_with("output0 " + std::to_string(rows) + " 4 :")) << outcome.out;
    const std::vector<float> wanted = f(counted({rows, 6})).to_vector<float>(), got = elements_of(outcome.out);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
  }
}

TEST_F(ExportedProcess, CodeForOlderProcessorsRuns) {
  const auto f = [](const Tensor& x) { return exp(x) * sum(x); };
  export_program(path(), {.targets = {Target::avx2}}, f, counted({5}));
  const Outcome outcome = run_in_c("0");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const std::vector<float> wanted = f(counted({5})).to_vector<float>(), got = elements_of(outcome.out);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
}

TEST_F(ExportedProcess, CodeForAnotherProcessorIsRefused) {
  export_program(
      path(), {.targets = {Target::avx512}}, [](const Tensor& x) { return x + 1.0; }, counted({5}));
  const Outcome outcome = run_in_c("0", "FERMATA_CPU=avx2");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "FM2203 UnsupportedError: " + path() +
                             " has code for avx512; this processor supports avx2\n"
                             "  hint export it with target avx2\n");
}

TEST_F(ExportedProcess, PythonCallsIt) {
#ifdef FERMATA_SANITIZED
  GTEST_SKIP() << "python3 is not linked to the sanitizer";
#endif
  if (run("python3 -c 'import ctypes'").status != 0) GTEST_SKIP() << "there is no python3";
  const auto f = [](const Tensor& x) { return x * 2.0 + 1.0; };
  export_program(path(), {.dynamic = {{"input0", 0, "rows"}}}, f, counted({2, 3}));
  const Outcome outcome =
      run("FERMATA_RUN_LIBRARY='" FERMATA_RUN_LIBRARY "' python3 '" FERMATA_PYTHON_EXAMPLE "' '" + path() + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("input0: f32 [any, 3]"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("output0: f32 [1, 3] 1 3 5"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace fermata
