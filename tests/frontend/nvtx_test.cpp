// Ranges for tools that are attached: a process with the tool of nvtx_injection/ runs the program below.
#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fermata/inspect.h"
#include "fermata/modules.h"
#include "fermata/profile.h"
#include "fermata/scope.h"

namespace fermata {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

/// Run in the process with the tool. A profile beside it sees what it always sees.
TEST(NvtxTest, DISABLED_Program) {
  set_compile_policy(CompilePolicy::immediate);
  struct Net {
    nn::Linear up{8, 16}, down{16, 8};
  };
  const Net net;
  const optim::Adam adam(net);
  const Tensor x = ones({4, 8}).sync();
  const auto forward = [&] { exp(net.down(net.up(x)) * 2 + 1).sync(); };
  forward();
  const Scope scope("evaluation");
  Profile profile;
  forward();
  EXPECT_EQ(profile.summary().syncs, 1u);
}

TEST(NvtxTest, SyncsStepsCompilesAndScopesAreRanges) {
  const char* const folder = std::getenv("FERMATA_BIN_DIR");
  const std::string tool = std::string(folder == nullptr ? "." : folder) + "/../lib/libfermata_nvtx_injection.so";
  if (!std::filesystem::exists(tool)) GTEST_SKIP() << "this build has no NVTX";
  const std::string record =
      (std::filesystem::temp_directory_path() / ("fermata_nvtx_" + std::to_string(getpid()))).string();
  const std::string command = "NVTX_INJECTION64_PATH='" + tool + "' NVTX_RECORD='" + record + "' '" +
                              std::filesystem::read_symlink("/proc/self/exe").string() +
                              "' --gtest_also_run_disabled_tests --gtest_filter=NvtxTest.DISABLED_Program "
                              "--gtest_output=xml:/dev/null > /dev/null 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream in(record);
  std::vector<std::string> ranges, open;
  bool is_sync_in_scope = false, is_step_in_sync = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "fermata end") {
      ASSERT_FALSE(open.empty());
      open.pop_back();
      continue;
    }
    ASSERT_THAT(line, StartsWith("fermata begin "));
    const std::string name = line.substr(14);
    const auto is_within = [&](const std::string& what) { return !open.empty() && open.back().starts_with(what); };
    if (name.starts_with("sync ")) is_sync_in_scope = is_sync_in_scope || is_within("evaluation");
    if (name.starts_with("call ") || name.starts_with("kernel "))
      is_step_in_sync = is_step_in_sync || is_within("sync ");
    open.push_back(name), ranges.push_back(name);
  }
  std::remove(record.c_str());
  EXPECT_TRUE(open.empty());  // each begin has its end
  EXPECT_TRUE(is_sync_in_scope && is_step_in_sync);
  EXPECT_THAT(ranges, Contains("up"));
  EXPECT_THAT(ranges, Contains("evaluation"));
  EXPECT_THAT(ranges, Contains("evaluation.down"));
  EXPECT_THAT(ranges, Contains(::testing::ContainsRegex("^sync .*  frontend/nvtx_test.cpp:")));
  EXPECT_THAT(ranges, Contains(StartsWith("compile ")));
  EXPECT_THAT(ranges, Contains(::testing::ContainsRegex("  (evaluation\\.)?(up|down) frontend/nvtx_test.cpp:")));
}

}  // namespace
}  // namespace fermata
