// Compiled kernels by description: exact, bounded, shared by all plans.
#pragma once

#include <cstddef>
#include <memory>

#include "dispatch/backend.h"

namespace fermata {

/// The executable of a kernel on a backend, compiled if it is not known. Equality is of the whole serialized
/// description, never of a hash. Errors are the backend's. A listing is only made by a compile that happens.
std::shared_ptr<const Executable> compile_cached(BackendKey key, const Kernel& kernel,
                                                 KernelListing* listing = nullptr);
void clear_kernel_cache();
/// How many kernels are kept, and the memory of their code. Plans keep theirs for as long as they live.
struct KernelCacheSize {
  std::size_t kernels = 0, code_bytes = 0;
};
KernelCacheSize kernel_cache_size();
/// How many may be kept: 8192, or FERMATA_KERNEL_LIMIT. Gives the number before.
std::size_t set_kernel_limit(std::size_t kernels);

/// For tests: called before every compile; throwing makes that compile fail.
extern void (*before_compile)(const Kernel& kernel);

}  // namespace fermata
