// Memory retained by pending calls.
//
// A pending call keeps its operands alive until it is computed, even if the program has released them. Beyond a limit,
// calls are computed as they are recorded if that frees more memory than their results take (docs/modes.md).
#pragma once

#include <cstddef>

namespace fermata {

/// Returns the bytes of buffers that only pending calls keep alive, over all threads. Buffers of less than 64 KiB do
/// not count.
std::size_t retained_bytes();
/// Sets the limit of the process (0 for none) and returns the previous one. The default is a quarter of the memory, or
/// FERMATA_RETAINED_LIMIT.
std::size_t set_retained_limit(std::size_t bytes);

}  // namespace fermata
