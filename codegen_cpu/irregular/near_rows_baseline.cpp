// Short rows near each other for any processor.
#include "codegen_cpu/irregular/near_rows_body.h"

namespace fermata {
const NearRowsKernels kNearRowsBaseline = kKernels;
}  // namespace fermata
