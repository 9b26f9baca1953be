// Bytes of a table for AVX2.
#include "codegen_cpu/irregular/byte_table_body.h"

namespace fermata {
const ByteTableKernels kByteTableAvx2 = kKernels;
}  // namespace fermata
