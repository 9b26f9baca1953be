// Compiled kernels by description: exact, bounded, shared by all plans.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "dispatch/backend.h"

namespace fermata {

/// The executable of a kernel on a backend, compiled if it is not known. Equality is of the whole serialized
/// description, never of a hash. Errors are the backend's. A listing is only made by a compile that happens.
std::shared_ptr<const Executable> compile_cached(BackendKey key, const Kernel& kernel,
                                                 KernelListing* listing = nullptr);
void clear_kernel_cache();
/// How often that was called: whoever keeps an executable by another key lets go of it then.
extern constinit std::atomic<std::uint32_t> kernel_cache_clears;
/// How many kernels are kept, and the memory of their code. Plans keep theirs for as long as they live.
struct KernelCacheSize {
  std::size_t kernels = 0, code_bytes = 0;
};
KernelCacheSize kernel_cache_size();
/// How many may be kept: 8192, or FERMATA_KERNEL_LIMIT. Gives the number before.
std::size_t set_kernel_limit(std::size_t kernels);

/// What the kernels that this thread compiles while it exists are called, in tools that look at the process from
/// outside. The description of a kernel has no name.
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
