// The loops of Fourier transforms for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/library/fft_kernels_body.h"

namespace fermata {
const FftKernels kFftAvx2 = kKernels;
}  // namespace fermata
