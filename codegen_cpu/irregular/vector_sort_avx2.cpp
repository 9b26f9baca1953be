// Quicksort in vectors for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/irregular/vector_sort_body.h"

namespace fermata {
const VectorSort kVectorSortAvx2 = kKernels;
}  // namespace fermata
