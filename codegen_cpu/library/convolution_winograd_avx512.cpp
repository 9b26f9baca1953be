// Winograd's transforms for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/library/convolution_winograd_body.h"

namespace fermata {
const WinogradKernels kWinogradAvx512 = kKernels;
}  // namespace fermata
