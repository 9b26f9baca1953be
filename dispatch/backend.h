// What a backend implements, and the kernel variants it registers.
//
// A backend is registered per backend key, private-use keys included: a third party adds a device without a change
// here. Its kernels are variants of a cell, each in one of three forms; see kernel_table.h.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "ir/key_set.h"
#include "runtime/backend_capabilities.h"
#include "runtime/executable.h"
#include "runtime/storage.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// What was compiled, for dumps.
struct KernelListing {
  std::string kernel, llvm, assembly;   // of a CPU
  std::string source{}, ptx{}, sass{};  // of CUDA
};

/// What a backend found on this machine, and what to do where that is too little.
struct BackendFinding {
  std::string what, found, advice;
};

/// Backends with several devices of one kind, and queues of work on each. Both are the calling thread's choice: what it
/// allocates and starts goes there.
class DeviceUnits {
 public:
  virtual ~DeviceUnits() = default;
  virtual int count() = 0;
  virtual int current() = 0;
  virtual void choose(int unit) = 0;
  /// The one that a buffer of the backend lies on.
  virtual int unit_of(const Storage& storage) = 0;
  virtual std::string describe(int unit) = 0;
  /// Queues of the current unit; null is the one that threads share.
  virtual void* new_queue() = 0;
  virtual void end_queue(void* queue) = 0;
  virtual void* current_queue() = 0;
  virtual void choose_queue(void* queue) = 0;
  virtual void wait_for_queue(void* queue) = 0;
  /// Bytes in use, kept for reuse, and the limit on both together, which is replaced where it is not 0.
  struct Memory {
    std::size_t live, cached, limit;
  };
  virtual Memory memory(std::size_t new_limit = 0) = 0;
  virtual std::size_t trim() = 0;
  /// Whether products may round their factors to be faster. Returns what was chosen before.
  virtual bool fast_products(bool on) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Can kernel descriptions be compiled here? If not, `failure_reason` says why and emitting ops run as call steps.
  virtual bool can_compile(std::string* failure_reason) const = 0;
  /// What kernels are compiled for, such as an instruction set; empty where none are compiled.
  virtual std::string_view target() const { return {}; }
  /// Machine code for a kernel. UnsupportedError or InternalError where that fails; nothing is left behind.
  virtual std::shared_ptr<const Executable> compile(const Kernel& kernel, KernelListing* listing) = 0;
  virtual Storage* allocate(std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
  /// DeviceError where the device is not there, for backends that may be registered on machines without one.
  virtual void require(std::string_view /*function*/, std::source_location /*where*/) {}
  virtual std::vector<BackendFinding> findings() { return {}; }
  virtual DeviceUnits* units() { return nullptr; }
  /// What passes and plans want to know of it.
  virtual BackendCapabilities capabilities() const { return {}; }
};

/// Null where no backend is registered under the key.
Backend* backend(BackendKey key);
/// Of a backend that is not registered: none.
BackendCapabilities capabilities_of(BackendKey key);
void register_backend(BackendKey key, std::unique_ptr<Backend> backend);

}  // namespace fermata
