// Sorting lines in vectors, where the processor has them.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// sort and argsort of a line of each, along the same axis; false where nothing has been done because radix sort is as
/// fast, or there are no vectors for it. 0 and -0 are equal to argsort, which is stable.
bool sort_in_vectors(const CallArgs& args, unsigned axis, bool descending);
bool argsort_in_vectors(const CallArgs& args, unsigned axis, bool descending);
/// top_k_indices of elements of up to 4 bytes; of equal ones the first come first.
bool top_k_in_vectors(const CallArgs& args, unsigned axis, std::int64_t k, bool largest);

}  // namespace fermata
