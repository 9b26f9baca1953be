// See backend_memory.h.
#include "runtime/backend_memory.h"

#include <string>

#include "ir/error.h"

namespace fermata {

constinit std::array<std::atomic<AllocateOn>, kBackendCount> backend_allocators{};

void set_allocator(BackendKey backend, AllocateOn allocate) {
  backend_allocators[static_cast<std::size_t>(backend)].store(allocate, std::memory_order_release);
}

void throw_no_memory_of(BackendKey backend) {
  throw_internal("memory of a backend that is not registered: " +
                 std::string(kBackendNames[static_cast<std::size_t>(backend)]));
}

}  // namespace fermata
