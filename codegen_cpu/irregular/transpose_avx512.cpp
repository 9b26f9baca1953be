// Copies of transposed planes for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/irregular/transpose_body.h"

namespace fermata {
const TransposeKernels kTransposeAvx512 = kKernels;
}  // namespace fermata
