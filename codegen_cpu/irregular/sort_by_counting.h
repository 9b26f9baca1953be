// Sorting of long lines of elements of one or two bytes, by how often each occurs.
#pragma once

#include <cstdint>

#include "runtime/tensor_view.h"

namespace fermata {

/// Whether lines of `size` elements are sorted so; shorter ones take less than the counters.
bool is_sorted_by_counting(DType dtype, std::int64_t size);
/// sort of such lines.
void sort_by_counting(const CallArgs& args, unsigned axis, bool descending);

}  // namespace fermata
