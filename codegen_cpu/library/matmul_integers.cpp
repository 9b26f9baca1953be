// The portable matmul of integers that libfermata_run leaves to libfermata_run_math.
#include "codegen_cpu/library/matmul.h"
#include "dispatch/kernel_files.h"

namespace fermata {

FERMATA_KERNELS(cpu) {
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "integers",
               .form = KernelForm::library,
               .dtypes = DTypeSet(kReal.bits & ~kShippedProducts.bits),
               .call = &matmul_portable,
               .cost = &matmul_portable_cost,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true,
               .ships = Ships::with_math});
}

}  // namespace fermata
