// A folder of its own for each test of files, which is the working folder meanwhile, so that messages name short paths.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fermata::test {

class InScratchFolder : public ::testing::Test {
 protected:
  InScratchFolder()
      : folder_(std::filesystem::temp_directory_path() / ("fermata_files_" + std::to_string(::getpid()))),
        before_(std::filesystem::current_path()) {
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  ~InScratchFolder() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static void write(const std::string& name, std::string_view text) {
    std::ofstream(name, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  static std::string contents(const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::filesystem::path folder_, before_;
};

/// The headline of the error of a call, without "at" and what follows.
template <class E, class F> std::string headline(F&& call) {
  try {
    call();
  } catch (const E& error) {
    const std::string text = error.what();
    return text.substr(0, text.find("\n  at"));
  } catch (const std::exception& error) { return std::string("another error: ") + error.what(); }
  return "no error";
}

}  // namespace fermata::test
