// Short rows near each other for AVX-512 (F, BW, DQ, VL; VBMI where the processor has it).
#include "codegen_cpu/irregular/near_rows_body.h"

namespace fermata {
const NearRowsKernels kNearRowsAvx512 = kKernels;
}  // namespace fermata
