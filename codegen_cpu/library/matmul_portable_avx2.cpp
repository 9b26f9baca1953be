// The portable matmul for AVX2 and FMA.
#define FERMATA_VECTOR_BYTES 32
#define FERMATA_MICRO_ROWS 6
#include "codegen_cpu/library/matmul_portable_body.h"

namespace fermata {

constinit const PortableKernels kPortableAvx2 = kernels_of_this_file();

}  // namespace fermata
