// Products of tiny matrices for AVX2 and FMA.
#include "codegen_cpu/library/matmul_tiny_body.h"

namespace fermata {
constinit const TinyKernels kTinyAvx2 = kTinyOfThisFile;
}  // namespace fermata
