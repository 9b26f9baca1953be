// Kernel descriptions on the CUDA backend: on the host executor, unless FERMATA_CUDA_EXECUTOR says otherwise.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "codegen_cuda/executable.h"
#include "codegen_cuda/host/executor.h"
#include "codegen_cuda/runtime/device.h"
#include "tests/codegen_cpu/kernel_case.h"

namespace fermata::test {

/// Before anything asks which executor there is. scripts/gpu-check.sh sets the variable, to nothing.
inline const int kUsesHostExecutor = setenv("FERMATA_CUDA_EXECUTOR", "host", 0);

/// The buffers of a case in device memory.
class DeviceCase {
 public:
  explicit DeviceCase(KernelCase& original) : case_(original) {
    const KernelLaunch launch = original.launch();
    for (std::size_t a = 0; a < original.kernel().accesses.size(); ++a) {
      if (original.kernel().accesses[a].address_only) {
        buffers_.emplace_back(), pointers_.push_back(nullptr);
        continue;
      }
      const std::span<unsigned char> bytes = original.bytes(a);
      buffers_.push_back(gpu::current_device().allocator().allocate(bytes.size(), gpu::current_stream()));
      gpu::check(gpu::driver().copy_to_device(buffers_.back()->address, bytes.data(), bytes.size(), stream()), "copy");
      const auto origin = static_cast<const unsigned char*>(launch.pointers[a]) - bytes.data();
      pointers_.push_back(reinterpret_cast<void*>(buffers_.back()->address + static_cast<std::uint64_t>(origin)));
    }
  }
  ~DeviceCase() {
    for (gpu::Block* const block : buffers_)
      if (block != nullptr) gpu::current_device().allocator().release(block);
  }
  KernelLaunch launch() {
    KernelLaunch launch = case_.launch();
    launch.pointers = pointers_.data();
    return launch;
  }
  /// Brings the results back into the case.
  void fetch() {
    for (std::size_t a = 0; a < buffers_.size(); ++a) {
      if (buffers_[a] == nullptr) continue;
      const std::span<unsigned char> bytes = case_.bytes(a);
      gpu::check(gpu::driver().copy_to_host(bytes.data(), buffers_[a]->address, bytes.size(), stream()), "copy");
    }
    gpu::synchronize(gpu::current_stream());
  }

 private:
  static gpu::Handle stream() { return gpu::current_stream().handle; }
  KernelCase& case_;
  std::vector<gpu::Block*> buffers_;
  std::vector<void*> pointers_;
};

}  // namespace fermata::test
