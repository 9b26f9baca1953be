// See register.h.
#include "codegen_cuda/register.h"

#include "dispatch/kernel_files.h"

namespace fermata {

void register_cuda_kernels() { add_kernel_files(BackendKey::cuda); }

}  // namespace fermata
