// See kernel_cache.h.
#include "dispatch/kernel_cache.h"

#include <mutex>
#include <string>
#include <unordered_map>

#include "ir/error.h"
#include "ir/fork.h"
#include "runtime/stats.h"

namespace fermata {

void (*before_compile)(const Kernel&) = nullptr;

namespace {

constexpr std::size_t kMaxKernels = 8192;

struct Cache {
  struct Entry {
    std::shared_ptr<const Executable> executable;
    std::uint64_t last_used;
  };
  ForkSafeMutex mutex;
  std::unordered_map<std::string, Entry> kernels;
  std::uint64_t clock = 0;

  void evict() {  // the older half, by age: rare, so a scan is fine
    const std::uint64_t limit = clock - clock / 2;
    std::erase_if(kernels, [&](const auto& e) { return e.second.last_used < limit; });
    if (kernels.size() >= kMaxKernels) kernels.clear();
  }
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
  auto executable = device->compile(kernel, listing);
  counters.kernels_compiled.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(c.mutex);
  if (c.kernels.size() >= kMaxKernels) c.evict();
  c.kernels.insert_or_assign(std::move(bytes), Cache::Entry{executable, ++c.clock});
  return executable;
}

void clear_kernel_cache() {
  std::lock_guard lock(cache().mutex);
  cache().kernels.clear();
}

}  // namespace fermata
