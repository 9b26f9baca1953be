// The size from which results are written with non-temporal stores.
//
// A store to memory that is not in a cache first reads the cache line to be overwritten; a non-temporal store does not.
// It pays if the next reader would not find the result in a cache. Measured with one read of the result after it was
// written: below 8 MiB plain stores win, from 16 MiB on non-temporal ones, by 1.3 to 1.8.
#pragma once

#include <cstdint>

namespace fermata {

/// The total bytes of a result from which it is streamed. The size of the last-level cache, but at most 8 MiB for each
/// available processor, or the measured size: virtual machines report the cache of a host that they share with others.
std::int64_t stream_threshold();
/// Where to ask for the MiB of a processor, when the threshold is first wanted.
void set_stream_share(double (*mebibytes)());
/// Measures whether one processor writes a result of so many bytes, which is read once after that, in less time if it
/// is streamed.
bool streaming_pays(std::int64_t bytes);
/// Returns the previous threshold.
std::int64_t set_stream_threshold(std::int64_t bytes);

}  // namespace fermata
