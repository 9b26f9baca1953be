// Accounting of the memory that the allocator has taken from the system, its idle part, and packed copies of operands,
// with their limits.
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
  std::atomic<std::size_t> idle{0};      // of these, in shared lists from which they can be returned to the system
  std::atomic<std::size_t> peak{0};      // of reserved - idle
  std::atomic<std::size_t> cache_limit;
  std::atomic<std::size_t> memory_limit;
  std::atomic<std::size_t> packed{0};  // bytes of packed copies
  std::atomic<std::size_t> packed_limit;
  std::atomic<std::size_t> retained_limit;  // of memory held by pending calls

  MemoryAccounts();
  /// Called before memory is taken from the system. At the limit it first returns all idle memory; throws
  /// OutOfMemoryError if that is not enough.
  void charge(std::size_t bytes);
  void discharge(std::size_t bytes) { reserved.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Counts the bytes as idle and returns true if the limit allows it.
  bool set_idle(std::size_t bytes);
  void set_busy(std::size_t bytes);
  /// Records that idle bytes were returned to the system.
  void discharge_idle(std::size_t bytes) {
    discharge(bytes);
    idle.fetch_sub(bytes, std::memory_order_relaxed);
  }
  void note_peak();
};
MemoryAccounts& memory_accounts();

[[noreturn]] void throw_out_of_memory(std::size_t bytes);

/// Maps fresh memory at a multiple of kHugePage, on huge pages if the system has them; returns null if there is no
/// more. Some bytes behind it may be read.
void* map_huge_pages(std::size_t bytes);
void unmap_huge_pages(void* data, std::size_t bytes);

/// Returns idle large buffers to the system.
std::size_t trim_large_buffers();

}  // namespace fermata
