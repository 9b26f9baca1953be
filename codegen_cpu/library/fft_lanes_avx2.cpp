// Fourier transforms of lines side by side for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/library/fft_lanes_body.h"

namespace fermata {
const FftLaneKernels kFftLanesAvx2 = kKernels;
}  // namespace fermata
