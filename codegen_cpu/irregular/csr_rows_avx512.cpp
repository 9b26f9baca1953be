// The rows of csr_matmul for AVX-512.
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/irregular/csr_rows_body.h"

namespace fermata {
const CsrKernels kCsrAvx512 = kKernels;
}  // namespace fermata
