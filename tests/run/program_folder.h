// A folder for the programs that a test exports.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace fermata {

class ProgramFolder : public ::testing::Test {
 protected:
  ProgramFolder()
      : folder_(std::filesystem::temp_directory_path() / ("fermata_run_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ProgramFolder() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name = "program.fermata") const { return folder_ / name; }

 private:
  const std::filesystem::path folder_;
};

}  // namespace fermata
