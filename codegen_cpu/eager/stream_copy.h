// Stores that bypass the caches, for results larger than the last cache level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata::eager {

/// Results of more bytes than this are not worth keeping in a cache.
std::int64_t stream_threshold();
/// memcpy past the caches, finished for all threads when it returns.
void stream_copy(void* to, const void* from, std::size_t bytes);

}  // namespace fermata::eager
