// What FERMATA_DUMP=cuda,ptx,sass shows of a kernel.
#pragma once

#include "codegen_cuda/executable.h"
#include "dispatch/backend.h"

namespace fermata::gpu {

KernelListing list_kernel(const Kernel& kernel, const CudaExecutable& executable);

}  // namespace fermata::gpu
