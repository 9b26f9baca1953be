// What pending calls keep in memory.
//
// A pending call keeps the tensors that it reads until it is computed, also those that the program has let go of. Past
// a limit, calls are computed as they are recorded where that frees more than their results take (docs/modes.md).
#pragma once

#include <cstddef>

namespace fermata {

/// Bytes of buffers that nothing keeps but pending calls, of all threads. Buffers of less than 64 KiB do not count.
std::size_t retained_bytes();
/// The limit of the process; 0 for none. Returns the one before. Default a quarter of the memory, or
/// FERMATA_RETAINED_LIMIT.
std::size_t set_retained_limit(std::size_t bytes);

}  // namespace fermata
