// Quicksort in vectors for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/irregular/vector_sort_body.h"

namespace fermata {
const VectorSort kVectorSortAvx512 = kKernels;
}  // namespace fermata
