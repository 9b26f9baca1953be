// See register.h.
#include "codegen_cuda/register.h"

#include "codegen_cuda/image_compiler.h"
#include "dispatch/kernel_files.h"

namespace fermata {

void register_cuda_kernels() {
  add_kernel_files(BackendKey::cuda);
  set_device_compiler(BackendKey::cuda, &gpu::image_compiler());
}

}  // namespace fermata
