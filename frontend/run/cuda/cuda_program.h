// A program on a CUDA device. Constants are copied there once; host inputs are copied for each run, and results
// are copied back unless the caller keeps them on the device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen_cuda/runtime/device.h"
#include "frontend/run/cuda/images.h"
#include "frontend/run/loaded_program.h"

namespace fermata {

class CudaProgram final : public LoadedProgram {
 public:
  /// UnsupportedError FM2203 if there is no code for the device; DeviceError FM1405, FM1406; and the errors of
  /// LoadedProgram.
  CudaProgram(ProgramBytes file, const ProgramHead& head, int device);
  ~CudaProgram() override;

  void verify() const override { LoadedProgram::verify(); }
  void seed(std::uint64_t key) override { LoadedProgram::seed(key); }
  std::vector<DenseResult> run(std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                               bool stay) override;
  void wait() override;
  bool set_stream(void* stream) override;

 protected:
  void run_bound(Runner& runner, std::span<const DenseView> inputs, std::span<const DenseView> outputs,
                 std::vector<DenseResult>& results, bool stay) override;

 private:
  void choose_target();
  void* on_device(const DenseView& input, std::vector<StoragePtr>& held) const;

  gpu::Device* device_ = nullptr;
  gpu::Stream* stream_ = nullptr;  // null: the one that threads share
  ProgramImages images_;
};

}  // namespace fermata
