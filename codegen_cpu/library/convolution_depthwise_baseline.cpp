// The loops of convolutions of single planes for any processor.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/library/convolution_depthwise_body.h"

namespace fermata {
const DepthwiseKernels kDepthwiseBaseline = kKernels;
}  // namespace fermata
