// The interface of a backend.
//
// A backend is registered under a backend key. Private keys let third parties add devices without changes here. Its
// kernels are variants of a cell, each in one of three forms; see kernel_table.h.
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

/// Listings of compiled code, for dumps.
struct KernelListing {
  std::string kernel, llvm, assembly;   // of a CPU
  std::string source{}, ptx{}, sass{};  // of CUDA
};

/// A finding of a backend about this machine, with advice if something is missing.
struct BackendFinding {
  std::string what, found, advice;
};

/// Backends with several devices of one kind, and work queues on each. Each thread has a current device and queue for
/// its allocations and launches.
class DeviceUnits {
 public:
  virtual ~DeviceUnits() = default;
  virtual int count() = 0;
  virtual int current() = 0;
  virtual void choose(int unit) = 0;
  /// The device that holds a buffer.
  virtual int unit_of(const Storage& storage) = 0;
  virtual std::string describe(int unit) = 0;
  /// Queues of the current device; null is the one shared by all threads.
  virtual void* new_queue() = 0;
  virtual void end_queue(void* queue) = 0;
  virtual void* current_queue() = 0;
  virtual void choose_queue(void* queue) = 0;
  virtual void wait_for_queue(void* queue) = 0;
  /// Bytes in use, bytes cached, and the limit on their sum. A `new_limit` other than 0 replaces the limit.
  struct Memory {
    std::size_t live, cached, limit;
  };
  virtual Memory memory(std::size_t new_limit = 0) = 0;
  virtual std::size_t trim() = 0;
  /// Allows matrix products to round operands for speed. Returns the previous setting.
  virtual bool fast_products(bool on) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Whether kernel descriptions can be compiled. If not, `failure_reason` says why, and emitted ops run as call steps.
  virtual bool can_compile(std::string* failure_reason) const = 0;
  /// The compilation target, such as an instruction set; empty if nothing is compiled.
  virtual std::string_view target() const { return {}; }
  /// Compiles a kernel. UnsupportedError or InternalError on failure.
  virtual std::shared_ptr<const Executable> compile(const Kernel& kernel, KernelListing* listing) = 0;
  virtual Storage* allocate(std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Throws DeviceError if the device is missing, for backends that may be registered on machines without one.
  virtual void require(std::string_view /*function*/, std::source_location /*where*/) {}
  virtual std::vector<BackendFinding> findings() { return {}; }
  virtual DeviceUnits* units() { return nullptr; }
  /// Properties used by passes and plans.
  virtual BackendCapabilities capabilities() const { return {}; }
};

/// Returns null if no backend is registered under the key.
Backend* backend(BackendKey key);
/// Returns no capabilities if the backend is not registered.
BackendCapabilities capabilities_of(BackendKey key);
void register_backend(BackendKey key, std::unique_ptr<Backend> backend);

}  // namespace fermata
