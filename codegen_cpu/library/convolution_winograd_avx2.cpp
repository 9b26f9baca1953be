// Winograd's transforms for AVX2 and FMA.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/library/convolution_winograd_body.h"

namespace fermata {
const WinogradKernels kWinogradAvx2 = kKernels;
}  // namespace fermata
