// Repeated elements for AVX2.
#include "codegen_cpu/irregular/repeat_body.h"

namespace fermata {
const RepeatKernels kRepeatAvx2 = kKernels;
}  // namespace fermata
