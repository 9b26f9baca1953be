// The loops of grid_sample for any machine.
#include "codegen_cpu/irregular/grid_sample_body.h"

namespace fermata {
const GridSampleKernels kGridSampleBaseline = kKernels;
}  // namespace fermata
