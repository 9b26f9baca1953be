// The product with packed weights for AVX-512.
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/library/packed_weights_body.h"

namespace fermata {

constinit const WeightsKernel kWeightsAvx512 = &multiply_weights;

}  // namespace fermata
