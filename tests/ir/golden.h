// Texts kept in files under tests/ir/golden: a difference fails, FERMATA_BLESS=1 rewrites, a missing file fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/test_folder.h"

namespace fermata::testing {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    ADD_FAILURE() << path << " is missing";
    return {};
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = test_folder() + "/ir/golden/" + name;
  if (const char* bless = std::getenv("FERMATA_BLESS"); bless != nullptr && *bless == '1')
    std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_text(path), text) << "FERMATA_BLESS=1 rewrites " << path;
}

}  // namespace fermata::testing
