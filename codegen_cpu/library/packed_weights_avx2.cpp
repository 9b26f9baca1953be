// The product with packed weights for AVX2 and FMA.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/library/packed_weights_body.h"

namespace fermata {

constinit const WeightsKernel kWeightsAvx2 = &multiply_weights;

}  // namespace fermata
