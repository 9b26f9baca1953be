// The loops of Fourier transforms for any processor.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/library/fft_kernels_body.h"

namespace fermata {
const FftKernels kFftBaseline = kKernels;
}  // namespace fermata
