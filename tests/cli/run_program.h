// Runs the built programs, and keeps what they print.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace fermata {

struct Outcome {
  int status = -1;
  std::string out, err;
};

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A folder of its own for one test, which becomes the current one.
class Scratch {
 public:
  Scratch() : before_(std::filesystem::current_path()) {
    folder_ = std::filesystem::temp_directory_path() / ("fermata_cli_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  ~Scratch() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  std::filesystem::path before_, folder_;
};

/// Runs bin/`command`, with arguments as a shell reads them and settings in front, as in "FERMATA_MODE=eager ". Without
/// a setting, kernels are kept in the current folder: those of earlier programs of the user change what is printed.
inline Outcome run_program(const std::string& command, const std::string& settings = {}) {
  const char* bin = std::getenv("FERMATA_BIN_DIR");
  if (bin == nullptr) throw std::runtime_error("FERMATA_BIN_DIR names the folder of the programs; CTest sets it");
  const std::string line = "FERMATA_CACHE_DIR=\"${FERMATA_CACHE_DIR-$PWD/kernels}\" " + settings + "'" + bin + "'/" +
                           command + " 2> stderr.txt";
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + line);
  Outcome outcome;
  std::array<char, 4096> block;
  for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe)) > 0;)
    outcome.out.append(block.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.err = file_text("stderr.txt");
  return outcome;
}

}  // namespace fermata
