// Allocation of backend buffers for plans and calls. A registered backend provides the function (dispatch/backend.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "ir/key_set.h"
#include "runtime/storage.h"

namespace fermata {

using AllocateOn = Storage* (*)(BackendKey backend, std::size_t bytes);
void set_allocator(BackendKey backend, AllocateOn allocate);

/// By backend; null if none is registered.
extern constinit std::array<std::atomic<AllocateOn>, kBackendCount> backend_allocators;
[[noreturn]] void throw_no_memory_of(BackendKey backend);

/// Returns a buffer of at least `bytes` bytes in a backend's memory; the caller holds one reference.
inline Storage* allocate_on(BackendKey backend, std::size_t bytes) {
  const AllocateOn allocate = backend_allocators[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
  if (allocate == nullptr) [[unlikely]]
    throw_no_memory_of(backend);
  return allocate(backend, bytes);
}

}  // namespace fermata
