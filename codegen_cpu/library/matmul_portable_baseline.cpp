// The portable matmul for any processor.
#define FERMATA_VECTOR_BYTES 16
#define FERMATA_MICRO_ROWS 4
#include "codegen_cpu/library/matmul_portable_body.h"

namespace fermata {

constinit const PortableKernels kPortableBaseline = kernels_of_this_file();

}  // namespace fermata
