// The rows of csr_matmul for any machine.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/irregular/csr_rows_body.h"

namespace fermata {
const CsrKernels kCsrBaseline = kKernels;
}  // namespace fermata
