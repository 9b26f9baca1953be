// Tensors and compiled kernels in GDB and LLDB, where they are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kPrinter = fermata::test_folder() + "/../frontend/tools/debugger/fermata_debugger.py";

bool has(const std::string& program) { return std::system(("command -v " + program + " > /dev/null").c_str()) == 0; }

std::string output_of(const std::string& command) {
  const Scratch scratch;
  const int status = std::system((command + " > out.txt 2>&1").c_str());
  return file_text("out.txt") + (status == 0 ? "" : "\nthe debugger failed");
}

std::string debuggee() { return std::string(std::getenv("FERMATA_BIN_DIR")) + "/fermata_debuggee"; }

TEST(Debugger, GdbShowsTensorsAndNamesKernels) {
  if (!has("gdb")) GTEST_SKIP() << "gdb is not installed";
  const std::string out = output_of(
      "gdb -q -nx -batch -ex 'set debuginfod enabled off' -ex 'source " + kPrinter +
      "' -ex 'break stop_here' -ex run -ex 'print ready' -ex 'print pending' -ex 'print half' -ex 'print view'"
      " -ex 'print undefined' -ex 'info functions fermata_exp' '" +
      debuggee() + "'");
  if (out.find("ptrace") != std::string::npos) GTEST_SKIP() << "processes may not be debugged here";
  EXPECT_THAT(out, HasSubstr("f32[2, 3] {1.5, -2, 3, 4, 5, 6}"));
  EXPECT_THAT(out, ContainsRegex("f32\\[2, 3\\] pending: add at .*debuggee.cpp:[0-9]+"));
  EXPECT_THAT(out, HasSubstr("bf16[2, 3] {1.5, -2, 3, 4, 5, 6}"));
  EXPECT_THAT(out, HasSubstr("f32[3, 2] {1.5, 4, -2, 5, 3, 6}"));
  EXPECT_THAT(out, ContainsRegex("= (\\(const fermata::Tensor &\\) .*: )?undefined"));
  EXPECT_THAT(out, HasSubstr("fermata_exp_multiply_add")) << "where kernels are compiled";
}

TEST(Debugger, LldbShowsTensors) {
  const std::string lldb = has("lldb") ? "lldb" : "lldb-19";
  if (!has(lldb)) GTEST_SKIP() << "lldb is not installed";
  const std::string out = output_of(
      lldb + " -x -b -o 'command script import " + kPrinter +
      "' -o 'breakpoint set -n stop_here' -o run -o 'frame variable ready pending view' '" + debuggee() + "'");
  if (out.find("f32[2, 3]") == std::string::npos && out.find("stop reason = breakpoint") == std::string::npos)
    GTEST_SKIP() << "processes may not be debugged here, or LLDB has no Python:\n" << out;
  EXPECT_THAT(out, HasSubstr("f32[2, 3] {1.5, -2, 3, 4, 5, 6}"));
  EXPECT_THAT(out, ContainsRegex("f32\\[2, 3\\] pending: add at .*debuggee.cpp:[0-9]+"));
  EXPECT_THAT(out, HasSubstr("f32[3, 2] {1.5, 4, -2, 5, 3, 6}"));
}

}  // namespace
}  // namespace fermata
