// What tests of programs that are exported for CUDA share: the fixture, and a run in a process that has libfermata_run
// alone.
#pragma once

#include <fermata/program.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "codegen_cuda/runtime/device.h"
#include "fermata/export.h"
#include "fermata/fermata.h"
#include "frontend/run/program_file.h"
#include "ir/error.h"
#include "tests/run/program_folder.h"

namespace fermata {

/// Whether this build makes code for processors.
inline bool exports_for_processors(const std::string& path) {
  try {
    export_program(
        path, {.targets = {Target::avx2}}, [](const Tensor& x) { return x + 1.0; }, full({1}, 0.0));
    return true;
  } catch (const UnsupportedError&) { return false; }
}

struct Outcome {
  int status;
  std::string out;
};
/// In a process that has libfermata_run and nothing else of Fermata's.
inline Outcome run_in_c(const std::string& settings, const std::string& arguments) {
  std::FILE* const pipe = popen((settings + " '" FERMATA_RUNS_PROGRAM "' " + arguments + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> block;
  for (std::size_t n = 0; (n = std::fread(block.data(), 1, block.size(), pipe)) > 0;) out.append(block.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out};
}

class ExportToCuda : public ProgramFolder {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }
  static std::vector<CudaArchitecture> architectures() {
    const gpu::DeviceInfo& info = gpu::current_device().info();
    return {{info.major, info.minor}};
  }
  run::Program loaded() const { return run::Program(path(), "cuda"); }
  /// The message of an error that loading a file gives.
  std::string refusal(const std::string& file, const std::string& device, int code) const {
    fermata_program* program = nullptr;
    EXPECT_EQ(fermata_program_load_on(file.c_str(), device.c_str(), &program), code);
    EXPECT_EQ(program, nullptr);
    return fermata_last_error();
  }
  std::string whole() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Writes the file with another description for CUDA.
  std::string with(const std::function<void(ProgramFile&)>& change) const {
    std::string bytes = whole();
    ProgramHead head = decode_head(bytes, "");
    ProgramFile program = decode_program(std::string_view(bytes).substr(head.cuda.offset, head.cuda.bytes), "");
    change(program);
    const std::string description = encode_program(program);
    head.cuda = {bytes.size(), description.size(), checksum_of(description)};
    bytes += description;
    bytes.replace(0, kHeadBytes, encode_head(head, bytes.size()));
    std::ofstream(path("changed.fermata"), std::ios::binary) << bytes;
    return path("changed.fermata");
  }
};

}  // namespace fermata
