// From which size on results are written past the caches.
//
// A store to memory that is not in a cache first reads the line that it is about to overwrite; a non-temporal store
// does not. It pays where a result would not be found in a cache by whoever reads it next. Measured on a result read
// once after it was written: below 8 MiB plain stores win, from 16 MiB on non-temporal ones, by 1.3 to 1.8.
#pragma once

#include <cstdint>

namespace fermata {

/// Bytes of a result, all of it, from which it is streamed. The size of the last cache, but at most 8 MiB for each of
/// our processors, or what was measured: virtual machines report the cache of a host that they share with others.
std::int64_t stream_threshold();
/// Where to ask for the MiB of a processor, when the threshold is first wanted.
void set_stream_share(double (*mebibytes)());
/// Measures whether one processor writes a result of so many bytes, which is read once after that, in less time if it
/// is streamed.
bool streaming_pays(std::int64_t bytes);
/// Returns the one before.
std::int64_t set_stream_threshold(std::int64_t bytes);

}  // namespace fermata
