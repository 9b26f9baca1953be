// A bounded cache of compiled kernels, shared by all plans.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "dispatch/backend.h"

namespace fermata {

/// Returns the executable of a kernel on a backend, compiled on a miss. Keys are compared by the whole serialized
/// description, never by hash alone. Errors are the backend's. A listing is filled only on a miss.
std::shared_ptr<const Executable> compile_cached(BackendKey key, const Kernel& kernel,
                                                 KernelListing* listing = nullptr);
void clear_kernel_cache();
/// The number of clears. Caches of executables under other keys drop them when it changes.
extern constinit std::atomic<std::uint32_t> kernel_cache_clears;
/// The number of cached kernels and the size of their code. Plans keep their own kernels alive.
struct KernelCacheSize {
  std::size_t kernels = 0, code_bytes = 0;
};
KernelCacheSize kernel_cache_size();
/// Sets the maximum number of cached kernels (default 8192, or FERMATA_KERNEL_LIMIT) and returns the previous one.
std::size_t set_kernel_limit(std::size_t kernels);

/// Names the kernels that this thread compiles in a scope, for profilers and debuggers. Kernel descriptions have no
/// name.
class KernelNameScope {
 public:
  explicit KernelNameScope(std::string_view name) : outer_(std::exchange(current_, name)) {}
  ~KernelNameScope() { current_ = outer_; }
  KernelNameScope(const KernelNameScope&) = delete;
  KernelNameScope& operator=(const KernelNameScope&) = delete;
  static std::string_view current() { return current_; }

 private:
  static inline constinit thread_local std::string_view current_;
  std::string_view outer_;
};

/// For tests: called before every compile; throwing makes that compile fail.
extern void (*before_compile)(const Kernel& kernel);

}  // namespace fermata
