// Rows that are added at positions for AVX-512.
#define FERMATA_VECTOR_BYTES 64
#include "codegen_cpu/irregular/added_rows_body.h"

namespace fermata {
const AddRowsTable kAddRowsAvx512 = kTable;
}  // namespace fermata
