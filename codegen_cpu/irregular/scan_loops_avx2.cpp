// Scans of dense lines for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/irregular/scan_loops_body.h"

namespace fermata {
const ScanLoopTable kScanLoopsAvx2 = kLoops;
}  // namespace fermata
