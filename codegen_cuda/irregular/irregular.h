// Registration of this folder's kernels: CUDA kernels of ops that cannot be expressed as kernel descriptions. Operands
// and attributes are as in ir/graph.h. Kernels take any strides, and results do not depend on thread scheduling.
#pragma once

#include "dispatch/kernel_files.h"

namespace fermata::gpu {

inline void add_nvrtc_kernel(Op op, CallKernel call, std::source_location where = std::source_location::current()) {
  add_variant(op, BackendKey::cuda, {.name = "nvrtc", .dtypes = kStoredReal, .call = call, .where = where});
}

}  // namespace fermata::gpu
