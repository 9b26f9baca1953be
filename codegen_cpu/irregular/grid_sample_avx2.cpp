// The loops of grid_sample for AVX2.
#include "codegen_cpu/irregular/grid_sample_body.h"

namespace fermata {
const GridSampleKernels kGridSampleAvx2 = kKernels;
}  // namespace fermata
