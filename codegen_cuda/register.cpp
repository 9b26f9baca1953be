// See register.h.
#include "codegen_cuda/register.h"

#include "codegen_cuda/irregular/irregular.h"
#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

void add_irregular_variants() {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const CallKernel kernel = cuda::irregular_kernel(static_cast<Op>(i)))
      add_variant(static_cast<Op>(i), BackendKey::cuda, {.name = "nvrtc", .dtypes = kRealOrBoolean, .call = kernel});
}

}  // namespace

void register_cuda_kernels() { add_irregular_variants(); }

}  // namespace fermata
