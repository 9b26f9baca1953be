// See device_memory.h.
#include "runtime/device_memory.h"

#include <array>

#include "ir/error.h"

namespace fermata {
namespace {
std::array<std::atomic<AllocateOn>, kBackendCount> allocators{};
}

void set_device_allocator(BackendKey backend, AllocateOn allocate) {
  allocators[static_cast<std::size_t>(backend)].store(allocate, std::memory_order_release);
}

Storage* allocate_elsewhere(BackendKey backend, std::size_t bytes) {
  const AllocateOn allocate = allocators[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
  if (allocate == nullptr) throw_internal("memory of a backend that is not registered");
  return allocate(backend, bytes);
}

}  // namespace fermata
