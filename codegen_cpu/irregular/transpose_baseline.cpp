// Copies of transposed planes for any processor.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/irregular/transpose_body.h"

namespace fermata {
const TransposeKernels kTransposeBaseline = kKernels;
}  // namespace fermata
