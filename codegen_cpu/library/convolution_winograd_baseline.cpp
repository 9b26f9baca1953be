// Winograd's transforms for any processor.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/library/convolution_winograd_body.h"

namespace fermata {
const WinogradKernels kWinogradBaseline = kKernels;
}  // namespace fermata
