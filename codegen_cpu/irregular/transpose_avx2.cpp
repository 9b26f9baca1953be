// Copies of transposed planes for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/irregular/transpose_body.h"

namespace fermata {
const TransposeKernels kTransposeAvx2 = kKernels;
}  // namespace fermata
