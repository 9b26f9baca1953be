// Products of tiny matrices for AVX-512 (F and VL).
#include "codegen_cpu/library/matmul_tiny_body.h"

namespace fermata {
constinit const TinyKernels kTinyAvx512 = kTinyOfThisFile;
}  // namespace fermata
