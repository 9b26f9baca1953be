// Many short lines, sorted side by side: lanes are lines.
#pragma once

#include <cstdint>

#include "codegen_cpu/irregular/sorted_lines.h"
#include "codegen_cpu/irregular/vector_sort.h"

namespace fermata {

/// False, and nothing is done, where lines are too long or too few.
bool sort_short_lines(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert,
                      bool descending);
/// The positions of the first `k` elements of each line in sorted order; of equal ones the first comes first.
bool first_of_short_lines(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert,
                          std::int64_t k, bool descending);

}  // namespace fermata
