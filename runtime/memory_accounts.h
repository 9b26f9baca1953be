// What the allocator has taken from the system, what of it lies idle, what copies of operands take; the limits on
// these.
//
// Private to the allocator (runtime/allocator.cpp, runtime/large_buffers.cpp), runtime/prepacked_weights.cpp,
// runtime/retained_leaves.cpp and runtime/events.cpp.
#pragma once

#include <atomic>
#include <cstddef>

namespace fermata {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct MemoryAccounts {
  std::atomic<std::size_t> reserved{0};  // bytes taken from the system
  std::atomic<std::size_t> idle{0};      // of these, in shared lists from which they can go back to the system
  std::atomic<std::size_t> peak{0};      // of reserved - idle
  std::atomic<std::size_t> cache_limit;
  std::atomic<std::size_t> memory_limit;
  std::atomic<std::size_t> packed{0};  // bytes of copies
  std::atomic<std::size_t> packed_limit;
  std::atomic<std::size_t> retained_limit;  // of what pending calls keep

  MemoryAccounts();
  /// Before memory is taken from the system. At the limit everything idle is given back first; OutOfMemoryError if that
  /// is not enough.
  void charge(std::size_t bytes);
  void discharge(std::size_t bytes) { reserved.fetch_sub(bytes, std::memory_order_relaxed); }
  /// True if so many more bytes may lie idle; then they are counted as idle.
  bool set_idle(std::size_t bytes);
  void set_busy(std::size_t bytes);
  /// Idle bytes went back to the system.
  void discharge_idle(std::size_t bytes) {
    discharge(bytes);
    idle.fetch_sub(bytes, std::memory_order_relaxed);
  }
  void note_peak();
};
MemoryAccounts& memory_accounts();

[[noreturn]] void throw_out_of_memory(std::size_t bytes);

/// Fresh pages at a multiple of kHugePage, on huge pages where the system has them; null if there is no more.
void* map_huge_pages(std::size_t bytes);
void unmap_huge_pages(void* data, std::size_t bytes);

/// Gives idle large buffers back to the system.
std::size_t trim_large_buffers();

}  // namespace fermata
