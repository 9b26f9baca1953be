// The loops of small matrices for every processor.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/library/small_matrices_body.h"

namespace fermata {
const SmallMatrices kSmallMatricesBaseline = kKernels;
}  // namespace fermata
