// The product with packed weights for any machine.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/library/packed_weights_body.h"

namespace fermata {

constinit const WeightsKernel kWeightsBaseline = &multiply_weights;

}  // namespace fermata
