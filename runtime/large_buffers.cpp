// Buffers above 1 MiB: a shared cache of mapped pages, so that a program that works in a loop faults each page once.
//
// Sizes are rounded up to eighths of a power of two in whole huge pages, and a cached buffer serves requests down to
// four fifths of its size. Beyond the limit the buffers that lay idle longest go back to the system.
#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <new>

#include "ir/fault_points.h"
#include "ir/fork.h"
#include "runtime/allocator.h"
#include "runtime/events.h"
#include "runtime/memory_accounts.h"

namespace fermata {
namespace {

class LargeBuffers {
 public:
  /// A cached buffer of at least `bytes`, which becomes its size; null if there is none that fits well.
  void* take(std::size_t& bytes);
  /// False if the cache has no room for it.
  bool give(void* data, std::size_t bytes) noexcept;
  std::size_t trim() { return evict(std::numeric_limits<std::size_t>::max()); }

 private:
  struct Cached {
    void* data;
    std::uint64_t since;
  };
  /// Returns buffers, the oldest first, until so many bytes are free; gives the number of bytes.
  std::size_t evict(std::size_t bytes);

  ForkSafeMutex mutex_;
  std::multimap<std::size_t, Cached> cached_;  // by size; equal sizes in order of arrival
  std::uint64_t clock_ = 0;
};

LargeBuffers& large_buffers() {
  static LargeBuffers* const buffers = new LargeBuffers;
  return *buffers;
}

std::size_t round_up_large(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 4) throw_out_of_memory(bytes);
  const std::size_t step = std::max(kHugePage, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void* LargeBuffers::take(std::size_t& bytes) {
  const std::lock_guard lock(mutex_);
  auto found = cached_.lower_bound(bytes);
  if (found == cached_.end() || found->first - bytes > bytes / 4) return nullptr;
  bytes = found->first;
  found = std::prev(cached_.upper_bound(bytes));  // the one used last: its lines may still be in the cache
  void* const data = found->second.data;
  cached_.erase(found);
  memory_accounts().set_busy(bytes);
  return data;
}

bool LargeBuffers::give(void* data, std::size_t bytes) noexcept try {
  if (!memory_accounts().set_idle(bytes)) {
    evict(bytes);
    if (!memory_accounts().set_idle(bytes)) return false;
  }
  const std::lock_guard lock(mutex_);
  cached_.emplace(bytes, Cached{data, ++clock_});
  return true;
} catch (const std::bad_alloc&) {
  memory_accounts().idle.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

std::size_t LargeBuffers::evict(std::size_t bytes) {
  std::size_t returned = 0;
  const std::lock_guard lock(mutex_);
  while (returned < bytes && !cached_.empty()) {
    const auto oldest = std::min_element(cached_.begin(), cached_.end(),
                                         [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
    unmap_huge_pages(oldest->second.data, oldest->first);
    memory_accounts().discharge_idle(oldest->first);
    returned += oldest->first;
    cached_.erase(oldest);
  }
  return returned;
}

}  // namespace

std::size_t trim_large_buffers() { return large_buffers().trim(); }

namespace {
void note(EventKind kind, std::string_view name, std::size_t bytes) {
  const std::int64_t now = event_clock();
  add_event({now, now, event_info(kind, name, {}), bytes, memory_in_use()});
}

void* take_large(std::size_t& bytes) {
  const std::size_t asked = bytes;
  if (fails_here(FaultKind::allocation)) throw_out_of_memory(asked);
  bytes = round_up_large(bytes);
  if constexpr (FERMATA_POOLED != 0)
    if (void* const cached = large_buffers().take(bytes)) return cached;
  memory_accounts().charge(bytes);
  for (const bool last : {false, true}) {
    void* const data =
        FERMATA_POOLED != 0 ? map_huge_pages(bytes) : ::operator new (bytes, std::align_val_t{kHugePage}, std::nothrow);
    if (data != nullptr) return data;
    if (!last) trim_cache();
  }
  memory_accounts().discharge(bytes);
  throw_out_of_memory(asked);
}

void give_large(void* data, std::size_t bytes) noexcept {
  if constexpr (FERMATA_POOLED != 0) {
    if (large_buffers().give(data, bytes)) return;
    unmap_huge_pages(data, bytes);
  } else {
    ::operator delete (data, std::align_val_t{kHugePage});
  }
  memory_accounts().discharge(bytes);
}

}  // namespace

void* allocate_large(std::size_t& bytes) {
  void* const data = take_large(bytes);
  if (wants_events()) [[unlikely]]
    note(EventKind::allocation, "allocate", bytes);
  return data;
}

void release_large(void* data, std::size_t bytes) noexcept {
  give_large(data, bytes);
  if (wants_events()) [[unlikely]]
    note(EventKind::release, "release", bytes);
}

}  // namespace fermata
