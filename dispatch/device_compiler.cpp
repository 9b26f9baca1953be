// See device_compiler.h.
#include "dispatch/device_compiler.h"

#include <array>
#include <atomic>

namespace fermata {
namespace {
constinit std::array<std::atomic<const DeviceCompiler*>, kBackendCount> compilers{};
}

const DeviceCompiler* device_compiler(BackendKey backend) {
  return compilers[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
}
void set_device_compiler(BackendKey backend, const DeviceCompiler* compiler) {
  compilers[static_cast<std::size_t>(backend)].store(compiler, std::memory_order_release);
}

}  // namespace fermata
