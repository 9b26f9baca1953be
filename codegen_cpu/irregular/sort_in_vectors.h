// Vectorized sorting of lines, if the processor supports it.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// sort and argsort of a line of each, along the same axis. Returns false and does nothing if radix sort is as
/// fast, or the processor does not support it. argsort is stable; 0 and -0 are equal.
bool sort_in_vectors(const CallArgs& args, unsigned axis, bool descending);
bool argsort_in_vectors(const CallArgs& args, unsigned axis, bool descending);
/// top_k_indices of elements of up to 4 bytes, and of short lines; equal elements are in order of position.
bool top_k_in_vectors(const CallArgs& args, unsigned axis, std::int64_t k, bool largest);

}  // namespace fermata
