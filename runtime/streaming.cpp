// See streaming.h.
#include "runtime/streaming.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace fermata {
namespace {

std::int64_t default_threshold() {
  const std::int64_t share = std::int64_t{std::max(1u, std::thread::hardware_concurrency())} << 23;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (const long size = sysconf(_SC_LEVEL3_CACHE_SIZE); size > 0) return std::min<std::int64_t>(size, share);
#endif
  return share;
}

std::atomic<std::int64_t>& threshold() {
  static std::atomic<std::int64_t> bytes{default_threshold()};
  return bytes;
}

}  // namespace

std::int64_t stream_threshold() { return threshold().load(std::memory_order_relaxed); }
std::int64_t set_stream_threshold(std::int64_t bytes) { return threshold().exchange(bytes, std::memory_order_relaxed); }

}  // namespace fermata
