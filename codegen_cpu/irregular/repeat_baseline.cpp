// Repeated elements for any processor.
#include "codegen_cpu/irregular/repeat_body.h"

namespace fermata {
const RepeatKernels kRepeatBaseline = kKernels;
}  // namespace fermata
