// Repeated elements for AVX-512 (F, BW, DQ, VL).
#include "codegen_cpu/irregular/repeat_body.h"

namespace fermata {
const RepeatKernels kRepeatAvx512 = kKernels;
}  // namespace fermata
