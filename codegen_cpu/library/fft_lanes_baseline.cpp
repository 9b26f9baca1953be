// Fourier transforms of lines side by side for any processor.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/library/fft_lanes_body.h"

namespace fermata {
const FftLaneKernels kFftLanesBaseline = kKernels;
}  // namespace fermata
