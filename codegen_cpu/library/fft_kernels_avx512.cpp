// The loops of Fourier transforms for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/library/fft_kernels_body.h"

namespace fermata {
const FftKernels kFftAvx512 = kKernels;
}  // namespace fermata
