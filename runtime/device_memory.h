// Memory of devices: where plans and calls get the buffers of a backend. A registered backend says how
// (dispatch/backend.h); the CPU's come straight from the caching allocator.
#pragma once

#include <cstddef>

#include "ir/key_set.h"
#include "runtime/storage.h"

namespace fermata {

using AllocateOn = Storage* (*)(BackendKey backend, std::size_t bytes);
void set_device_allocator(BackendKey backend, AllocateOn allocate);

/// The hook of a backend other than the CPU; InternalError where none is registered.
Storage* allocate_elsewhere(BackendKey backend, std::size_t bytes);

/// A buffer of at least `bytes` bytes in a backend's memory, one reference held by the caller.
inline Storage* allocate_on(BackendKey backend, std::size_t bytes) {
  if (backend == BackendKey::cpu) [[likely]]
    return Storage::allocate(bytes);
  return allocate_elsewhere(backend, bytes);
}

}  // namespace fermata
