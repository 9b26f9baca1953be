// Rows that are added at positions for the baseline.
#define FERMATA_VECTOR_BYTES 16
#include "codegen_cpu/irregular/added_rows_body.h"

namespace fermata {
const AddRowsTable kAddRowsBaseline = kTable;
}  // namespace fermata
