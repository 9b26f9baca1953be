// Short rows near each other for AVX2.
#include "codegen_cpu/irregular/near_rows_body.h"

namespace fermata {
const NearRowsKernels kNearRowsAvx2 = kKernels;
}  // namespace fermata
