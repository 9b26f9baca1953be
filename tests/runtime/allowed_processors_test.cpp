// How many processors a process may use: what the files of control groups say.
#include "runtime/allowed_processors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

namespace fermata {
namespace {

namespace fs = std::filesystem;

class ControlGroups : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  double limit() const { return processors_of_groups(folder_ / "groups", folder_); }

 private:
  const fs::path folder_ = fs::temp_directory_path() / "fermata_control_groups_test";
};

TEST_F(ControlGroups, NoFilesAreNoLimit) {
  EXPECT_TRUE(std::isinf(limit()));
  write("groups", "0::/\n");
  EXPECT_TRUE(std::isinf(limit()));
  write("cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(limit()));
}

TEST_F(ControlGroups, TheLeastOfAGroupAndThoseAroundItCounts) {
  write("groups", "0::/service/one\n");
  write("service/one/cpu.max", "max 100000\n");
  write("service/cpu.max", "150000 100000\n");
  EXPECT_EQ(limit(), 1.5);
  write("service/one/cpu.max", "50000 100000\n");
  EXPECT_EQ(limit(), 0.5);
  write("service/one/cpu.max", "400000 100000\n");
  EXPECT_EQ(limit(), 1.5);
}

TEST_F(ControlGroups, OfVersionOneAreKnown) {
  write("groups", "9:name=systemd:/service\n3:cpu,cpuacct:/service\n2:cpuset:/service\n");
  write("cpu/service/cpu.cfs_quota_us", "-1\n");
  write("cpu/service/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(limit()));
  write("cpu/service/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(limit(), 3);
}

TEST_F(ControlGroups, OtherTextIsNoLimit) {
  write("groups", "no colons\n::\n0::relative\n0::/service\n");
  write("service/cpu.max", "many\n");
  EXPECT_TRUE(std::isinf(limit()));
  write("service/cpu.max", "100000 0\n");
  EXPECT_TRUE(std::isinf(limit()));
}

TEST(AllowedProcessors, AreAmongThoseOfTheMachine) {
  EXPECT_GE(allowed_processors(), 1);
  EXPECT_LE(allowed_processors(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace fermata
