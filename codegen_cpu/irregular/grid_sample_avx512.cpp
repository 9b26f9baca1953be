// The loops of grid_sample for AVX-512.
#include "codegen_cpu/irregular/grid_sample_body.h"

namespace fermata {
const GridSampleKernels kGridSampleAvx512 = kKernels;
}  // namespace fermata
