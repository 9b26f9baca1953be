// Bytes of a table for AVX-512 (F, BW, DQ, VL; VBMI where the processor has it).
#include "codegen_cpu/irregular/byte_table_body.h"

namespace fermata {
const ByteTableKernels kByteTableAvx512 = kKernels;
}  // namespace fermata
