// The loops of convolutions of single planes for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/library/convolution_depthwise_body.h"

namespace fermata {
const DepthwiseKernels kDepthwiseAvx2 = kKernels;
}  // namespace fermata
