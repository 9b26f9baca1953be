// See backend.h.
#include "dispatch/backend.h"

#include <array>
#include <atomic>
#include <typeinfo>

#include "dispatch/loaded_code.h"
#include "ir/error.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {
std::array<std::atomic<Backend*>, kBackendCount> backends{};
}

Backend* backend(BackendKey key) { return backends[static_cast<std::size_t>(key)].load(std::memory_order_acquire); }

BackendCapabilities capabilities_of(BackendKey key) {
  const Backend* const found = backend(key);
  return found != nullptr ? found->capabilities() : BackendCapabilities{};
}

void register_backend(BackendKey key, std::unique_ptr<Backend> backend) {
  const Backend& made = *backend;
  keep_loaded(typeid(made).name());
  Backend* none = nullptr;
  if (!backends[static_cast<std::size_t>(key)].compare_exchange_strong(none, backend.get()))
    throw InternalError(9003, format_error(9003, "InternalError", "the key already has a backend", {}, {}));
  backend.release();  // backends live as long as the process: executables refer to them
  set_allocator(key, [](BackendKey of, std::size_t bytes) { return fermata::backend(of)->allocate(bytes); });
}

}  // namespace fermata
