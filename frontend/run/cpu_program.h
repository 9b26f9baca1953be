// A program on this machine's processor.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/run/loaded_program.h"

namespace fermata {

class CpuProgram final : public LoadedProgram {
 public:
  /// UnsupportedError FM2203 where there is no code for this processor, and the errors of LoadedProgram.
  CpuProgram(ProgramBytes file, const ProgramHead& head);

 protected:
  void run_bound(Runner& runner, std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                 std::vector<DenseResult>& results, bool stay) override;

 private:
  void choose_target();
  void load_kernels();
};

/// A program for a device: "cpu", "cuda", "cuda:1"; "" for the processor if the file has code for it, else for CUDA.
/// FileError FM1601 where the file cannot be read, FM2202 where it is no program of this version, FM2201 where it is
/// damaged; UnsupportedError FM2203 where it has no code for the device, FM2204 for ops without a kernel here, FM2206
/// where the part for CUDA cannot be loaded; DeviceError FM1405 and FM1406.
std::unique_ptr<LoadedProgram> load_program(const std::string& path, std::string_view device = {});

}  // namespace fermata
