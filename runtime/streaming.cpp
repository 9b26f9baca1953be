// See streaming.h.
#include "runtime/streaming.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>

#include "runtime/allocator.h"
#include "runtime/allowed_processors.h"
#include "runtime/machine_limits.h"

namespace fermata {
namespace {

constinit std::atomic<double (*)()> share_of_processor{nullptr};

std::int64_t default_threshold() {
  double (*const mebibytes)() = share_of_processor.load();
  const double share_mib = allowed_processors() * (mebibytes != nullptr ? mebibytes() : 8);
  const auto share = static_cast<std::int64_t>(share_mib * (1 << 20));
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (const long size = sysconf(_SC_LEVEL3_CACHE_SIZE); size > 0) return std::min<std::int64_t>(size, share);
#endif
  return share;
}

std::atomic<std::int64_t>& threshold() {
  static std::atomic<std::int64_t> bytes{default_threshold()};
  return bytes;
}

/// Reads a line at a time.
std::uint64_t sum_of_lines(const std::byte* from, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes; i += 64) sum += static_cast<std::uint64_t>(from[i]);
  return sum;
}

/// The least of some runs, in ns; null functions take for ever.
double time_of_copy(void (*copy)(void*, const void*, std::size_t), std::byte* to, const std::byte* from,
                    std::size_t bytes) {
  double best = std::numeric_limits<double>::infinity();
  if (copy == nullptr) return best;
  volatile std::uint64_t used = 0;
  for (int run = 0; run < 4; ++run) {
    const auto start = std::chrono::steady_clock::now();
    copy(to, from, bytes);
    used = used + sum_of_lines(to, bytes);
    const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    if (run > 0) best = std::min(best, ns);
  }
  return best;
}

}  // namespace

void set_stream_share(double (*mebibytes)()) { share_of_processor.store(mebibytes); }

bool streaming_pays(std::int64_t bytes) {
  constexpr double kPays = 0.95;
  void (*plain)(void*, const void*, std::size_t) = nullptr;
  void (*streamed)(void*, const void*, std::size_t) = nullptr;
  for (const machine::Copy& c : machine::copies()) {  // the last of a kind has the widest vectors
    if (c.name == "plain") plain = c.run;
    if (c.name.starts_with("non-temporal")) streamed = c.run;
  }
  const auto size = static_cast<std::size_t>(bytes);
  const Allocation to = allocate_bytes(size), from = allocate_bytes(size);
  std::memset(to.data, 1, size), std::memset(from.data, 1, size);
  auto* const a = static_cast<std::byte*>(to.data);
  const auto* const b = static_cast<const std::byte*>(from.data);
  const double with = time_of_copy(streamed, a, b, size), without = time_of_copy(plain, a, b, size);
  release_bytes(to), release_bytes(from);
  return with < kPays * without;
}

std::int64_t stream_threshold() { return threshold().load(std::memory_order_relaxed); }
std::int64_t set_stream_threshold(std::int64_t bytes) { return threshold().exchange(bytes, std::memory_order_relaxed); }

}  // namespace fermata
