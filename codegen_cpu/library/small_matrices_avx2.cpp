// The loops of small matrices for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/library/small_matrices_body.h"

namespace fermata {
const SmallMatrices kSmallMatricesAvx2 = kKernels;
}  // namespace fermata
