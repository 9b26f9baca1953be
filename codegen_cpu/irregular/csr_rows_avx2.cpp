// The rows of csr_matmul for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/irregular/csr_rows_body.h"

namespace fermata {
const CsrKernels kCsrAvx2 = kKernels;
}  // namespace fermata
