// Stores that bypass the caches, for results of at least stream_threshold() bytes (runtime/streaming.h).
#pragma once

#include <cstddef>

namespace fermata::eager {

/// memcpy past the caches, finished for all threads when it returns.
void stream_copy(void* to, const void* from, std::size_t bytes);

}  // namespace fermata::eager
