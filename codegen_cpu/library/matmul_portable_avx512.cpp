// The portable matmul for AVX-512 (F, BW, DQ, VL).
#define FERMATA_VECTOR_BYTES 64
#define FERMATA_MICRO_ROWS 14
#include "codegen_cpu/library/matmul_portable_body.h"

namespace fermata {

constinit const PortableKernels kPortableAvx512 = kernels_of_this_file();

}  // namespace fermata
