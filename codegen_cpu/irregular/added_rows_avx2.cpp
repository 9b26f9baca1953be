// Rows that are added at positions for AVX2.
#define FERMATA_VECTOR_BYTES 32
#include "codegen_cpu/irregular/added_rows_body.h"

namespace fermata {
const AddRowsTable kAddRowsAvx2 = kTable;
}  // namespace fermata
