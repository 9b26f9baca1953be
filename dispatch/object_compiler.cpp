// See object_compiler.h.
#include "dispatch/object_compiler.h"

#include <array>
#include <atomic>

namespace fermata {
namespace {
constinit std::array<std::atomic<const ObjectCompiler*>, kBackendCount> compilers{};
}

const ObjectCompiler* object_compiler(BackendKey backend) {
  return compilers[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
}
void set_object_compiler(BackendKey backend, const ObjectCompiler* compiler) {
  compilers[static_cast<std::size_t>(backend)].store(compiler, std::memory_order_release);
}

}  // namespace fermata
