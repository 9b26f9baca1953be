// Memory for tensors, nodes and buffers.
//
// Blocks up to 1 MiB come in size classes from per-thread magazines (Bonwick and Adams, USENIX 2001): no lock, and the
// shared lists are visited once per magazine, also when one thread allocates what another frees. Larger buffers come
// from a shared, bounded cache, aligned to 2 MiB and on huge pages. Everything outlives static destructors.
//
// Under sanitizers (FERMATA_POOLED=0) every block is a plain aligned `new`, so that the sanitizers see each one.
// FERMATA_CACHE_LIMIT: bytes kept for reuse, by default half of the memory. FERMATA_MEMORY_LIMIT: total bytes taken
// from the system, by default all of its memory, so that a request that cannot succeed throws instead of getting the
// process killed.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#ifndef FERMATA_POOLED
#define FERMATA_POOLED 1
#endif

namespace fermata {

/// Blocks by size class: multiples of 64 bytes up to 512, then powers of two up to 1 MiB; all 64-byte aligned.
class BlockPool {
 public:
  static constexpr std::uint32_t kClasses = 19;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  static constexpr std::size_t block_bytes(std::uint32_t c) {
    return c < 8 ? std::size_t{64} * (c + 1) : std::size_t{1024} << (c - 8);
  }
  /// The smallest class that holds `bytes`, for bytes up to kMaxBytes; at compile time where the size is known.
  static constexpr std::uint32_t class_of(std::size_t bytes) {
    if (bytes <= 512) return static_cast<std::uint32_t>((bytes + 63) / 64) - (bytes != 0);
    return static_cast<std::uint32_t>(std::bit_width(bytes - 1)) - 2;
  }

  /// Returns a block of a class below kClasses. Throws OutOfMemoryError if none is left.
  static void* allocate(std::uint32_t c) {
    if constexpr (FERMATA_POOLED == 0) return allocate_plain(c);
    Magazines& m = local_[c];
    if (m.loaded == nullptr) [[unlikely]]
      return allocate_slow_path(c);
    m.room.store(m.room.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return std::exchange(m.loaded, m.loaded->next);
  }
  /// Returns a block of the same class to the pool, from any thread.
  static void release(void* block, std::uint32_t c) noexcept {
    if constexpr (FERMATA_POOLED == 0) return release_plain(block, c);
    Magazines& m = local_[c];
    const std::uint32_t room = m.room.load(std::memory_order_relaxed);
    if (room == 0) [[unlikely]]
      return release_slow_path(block, c);
    m.room.store(room - 1, std::memory_order_relaxed);
    m.loaded = ::new (block) Block{m.loaded};
  }

 private:
  friend class SharedBlocks;
  struct Block {
    Block* next;
  };
  /// One thread's blocks of a class: the magazine in use and a full one in reserve. `room` is how many more blocks fit
  /// in `loaded`; it is 0 until the thread first takes the slow path. Only the thread writes; spare and room are atomic
  /// so that memory_stats() may look.
  struct Magazines {
    Block* loaded;
    std::atomic<Block*> spare;
    std::atomic<std::uint32_t> room;
  };

  static void* allocate_slow_path(std::uint32_t c);
  static void release_slow_path(void* block, std::uint32_t c) noexcept;
  static void* allocate_plain(std::uint32_t c);
  static void release_plain(void* block, std::uint32_t c) noexcept;

  static constinit thread_local Magazines local_[kClasses];
};

/// A buffer of any size, with the data needed to free it.
struct Allocation {
  static constexpr std::uint32_t kLarge = BlockPool::kClasses;
  void* data = nullptr;
  std::size_t bytes = 0;         // usable: at least the requested size
  std::uint32_t size_class = 0;  // of BlockPool, or kLarge
};

/// Buffers above BlockPool::kMaxBytes, aligned to 2 MiB; sets `bytes` to the allocated size
/// (runtime/large_buffers.cpp).
void* allocate_large(std::size_t& bytes);
void release_large(void* data, std::size_t bytes) noexcept;

/// At least `bytes` bytes, uninitialized, 64-byte aligned (2 MiB from 1 MiB up). Zero bytes are a valid buffer. Throws
/// OutOfMemoryError FM3001 if the system has no more memory or the limit is reached, even after freeing everything
/// cached.
inline Allocation allocate_bytes(std::size_t bytes) {
  if (bytes <= BlockPool::kMaxBytes) [[likely]] {
    const std::uint32_t c = BlockPool::class_of(bytes);
    return {BlockPool::allocate(c), BlockPool::block_bytes(c), c};
  }
  void* const data = allocate_large(bytes);
  return {data, bytes, Allocation::kLarge};
}
inline void release_bytes(const Allocation& a) noexcept {
  if (a.size_class != Allocation::kLarge) [[likely]]
    return BlockPool::release(a.data, a.size_class);
  release_large(a.data, a.bytes);
}

/// For vectors of a few elements that every call makes: their elements are blocks.
template <class T> struct BlockAllocator {
  using value_type = T;
  BlockAllocator() = default;
  template <class U> BlockAllocator(const BlockAllocator<U>&) {}
  T* allocate(std::size_t count) {
    if (count * sizeof(T) > BlockPool::kMaxBytes) [[unlikely]]
      return std::allocator<T>().allocate(count);
    return static_cast<T*>(BlockPool::allocate(BlockPool::class_of(count * sizeof(T))));
  }
  void deallocate(T* elements, std::size_t count) noexcept {
    if (count * sizeof(T) > BlockPool::kMaxBytes) [[unlikely]]
      return std::allocator<T>().deallocate(elements, count);
    BlockPool::release(elements, BlockPool::class_of(count * sizeof(T)));
  }
  bool operator==(const BlockAllocator&) const = default;
};
template <class T> using BlockVector = std::vector<T, BlockAllocator<T>>;

struct MemoryStats {
  std::size_t live_bytes = 0;    // in allocated blocks and buffers
  std::size_t cached_bytes = 0;  // kept for reuse
  std::size_t peak_bytes = 0;    // the most taken from the system for blocks plus live in large buffers
};
MemoryStats memory_stats();
/// Resets the peak to the memory in use now.
void reset_peak_memory();

/// Returns cached memory to the system: large buffers, and the blocks of 32 KiB and more that are in no thread's
/// magazines. Returns the number of bytes.
std::size_t trim_cache();
/// Set the limits of bytes kept for reuse and of total bytes taken from the system. Return the previous limit.
std::size_t set_cache_limit(std::size_t bytes);
std::size_t set_memory_limit(std::size_t bytes);

}  // namespace fermata
