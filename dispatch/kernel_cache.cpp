// See kernel_cache.h.
#include "dispatch/kernel_cache.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "ir/error.h"
#include "ir/fault_points.h"
#include "ir/fork.h"
#include "runtime/environment.h"
#include "runtime/events.h"
#include "runtime/evict_least_recently_used.h"
#include "runtime/stats.h"

namespace fermata {

void (*before_compile)(const Kernel&) = nullptr;

namespace {

struct Cache {
  struct Entry {
    std::shared_ptr<const Executable> executable;
    std::uint64_t last_used;
  };
  ForkSafeMutex mutex;
  std::unordered_map<std::string, Entry> kernels;
  std::uint64_t clock = 0;
  std::size_t limit = environment_number("FERMATA_KERNEL_LIMIT", 8192, 1);
};
Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}

}  // namespace

std::shared_ptr<const Executable> compile_cached(BackendKey key, const Kernel& kernel, KernelListing* listing) {
  Backend* device = backend(key);
  if (device == nullptr) throw_internal("a kernel is compiled for a backend that is not registered");
  std::string bytes = serialize(kernel);
  bytes.push_back(static_cast<char>(key));
  Cache& c = cache();
  if (listing == nullptr) {
    std::lock_guard lock(c.mutex);
    if (const auto found = c.kernels.find(bytes); found != c.kernels.end()) {
      found->second.last_used = ++c.clock;
      counters.kernel_hits.fetch_add(1, std::memory_order_relaxed);
      return found->second.executable;
    }
  }
  if (before_compile != nullptr) before_compile(kernel);
  if (fails_here(FaultKind::compile)) throw_internal("compilation failed by request of a test");
  const EventScope event([&] {
    return keep_event_info({.kind = EventKind::code,
                            .name = "machine code",
                            .detail = std::string(device->name()) + " kernel of " +
                                      std::to_string(kernel.accesses.size()) + " loads and stores, " +
                                      std::to_string(kernel.program.size()) + " primitives"});
  });
  auto executable = device->compile(kernel, listing);
  counters.kernels_compiled.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(c.mutex);
  while (c.kernels.size() >= c.limit)
    evict_least_recently_used(c.kernels, [](const auto& kernel) { return kernel.second.last_used; });
  c.kernels.insert_or_assign(std::move(bytes), Cache::Entry{executable, ++c.clock});
  return executable;
}

constinit std::atomic<std::uint32_t> kernel_cache_clears{0};

void clear_kernel_cache() {
  kernel_cache_clears.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(cache().mutex);
  cache().kernels.clear();
}

KernelCacheSize kernel_cache_size() {
  std::lock_guard lock(cache().mutex);
  KernelCacheSize size{cache().kernels.size(), 0};
  for (const auto& [description, kernel] : cache().kernels) size.code_bytes += kernel.executable->code_bytes();
  return size;
}

std::size_t set_kernel_limit(std::size_t kernels) {
  std::lock_guard lock(cache().mutex);
  return std::exchange(cache().limit, std::max<std::size_t>(kernels, 1));
}

}  // namespace fermata
