// Fourier transforms of lines side by side for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/library/fft_lanes_body.h"

namespace fermata {
const FftLaneKernels kFftLanesAvx512 = kKernels;
}  // namespace fermata
