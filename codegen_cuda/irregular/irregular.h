// How the kernels of this folder register: those of the ops that no kernel description can say, on CUDA. Operands and
// attributes are as in ir/graph.h. Any strides; results do not depend on how threads are scheduled.
#pragma once

#include "dispatch/kernel_files.h"

namespace fermata::gpu {

inline void add_nvrtc_kernel(Op op, CallKernel call, std::source_location where = std::source_location::current()) {
  add_variant(op, BackendKey::cuda, {.name = "nvrtc", .dtypes = kStoredReal, .call = call, .where = where});
}

}  // namespace fermata::gpu
