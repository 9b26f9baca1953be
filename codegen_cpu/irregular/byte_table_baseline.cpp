// Bytes of a table for any processor.
#include "codegen_cpu/irregular/byte_table_body.h"

namespace fermata {
const ByteTableKernels kByteTableBaseline = kKernels;
}  // namespace fermata
