// The loops of small matrices for AVX-512.
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/library/small_matrices_body.h"

namespace fermata {
const SmallMatrices kSmallMatricesAvx512 = kKernels;
}  // namespace fermata
