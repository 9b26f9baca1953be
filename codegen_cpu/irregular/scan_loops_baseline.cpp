// Scans of dense lines for the baseline.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/irregular/scan_loops_body.h"

namespace fermata {
const ScanLoopTable kScanLoopsBaseline = kLoops;
}  // namespace fermata
