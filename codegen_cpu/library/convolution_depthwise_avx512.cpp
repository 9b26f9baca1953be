// The loops of convolutions of single planes for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/library/convolution_depthwise_body.h"

namespace fermata {
const DepthwiseKernels kDepthwiseAvx512 = kKernels;
}  // namespace fermata
