// What FERMATA_CODE_SYMBOLS leaves for perf.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/run_program.h"

namespace fermata {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(CodeSymbols, AreWrittenForPerf) {
  const Scratch scratch;
  std::ofstream("p.ir") << "%0 = input : f32[64]\n%1 = exp(%0) : f32[64]\n%2 = add(%1, 1) : f32[64]\nreturn %2\n";
  const Outcome run = run_program("fermata run p.ir",
                                  "echo $$ > pid.txt; exec env FERMATA_COMPILE=immediate "
                                  "FERMATA_CODE_SYMBOLS=perf,jitdump ");
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string pid = std::to_string(std::stoi(file_text("pid.txt")));
  const std::string map = "/tmp/perf-" + pid + ".map", dump = "/tmp/jit-" + pid + ".dump";
  ASSERT_TRUE(std::filesystem::exists(map) && std::filesystem::exists(dump));
  const std::string names = file_text(map), code = file_text(dump);
  std::filesystem::remove(map), std::filesystem::remove(dump);
  if (names.empty()) GTEST_SKIP() << "kernels are not compiled here";
  EXPECT_THAT(names, ContainsRegex("[0-9a-f]+ [0-9a-f]+ fermata_exp_add\n"));
  EXPECT_EQ(code.substr(0, 4), "DTiJ");
  EXPECT_THAT(code, HasSubstr("fermata_exp_add"));
}

}  // namespace
}  // namespace fermata
