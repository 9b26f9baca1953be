// Scans of dense lines for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/irregular/scan_loops_body.h"

namespace fermata {
const ScanLoopTable kScanLoopsAvx512 = kLoops;
}  // namespace fermata
