// The listing of a kernel for FERMATA_DUMP=cuda,ptx,sass.
#pragma once

#include "codegen_cuda/executable.h"
#include "dispatch/backend.h"

namespace fermata::gpu {

KernelListing list_kernel(const Kernel& kernel, const CudaExecutable& executable);

}  // namespace fermata::gpu
