// See allocator.h. What threads share: lists of magazines, the slab that small blocks are carved from, and a register
// of the threads' own magazines for memory_stats().
#include "runtime/allocator.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <new>

#include "ir/fault_points.h"
#include "ir/fork.h"
#include "runtime/memory_accounts.h"
#include "runtime/prepacked_weights.h"

namespace fermata {
namespace {

/// Blocks up to here are carved from slabs, and stay; larger ones are taken one by one and can go back.
constexpr std::size_t kCarvedBytes = 16 << 10;
constexpr std::size_t kMagazineBytes = 32 << 10;

constexpr bool is_carved(std::uint32_t c) { return BlockPool::block_bytes(c) <= kCarvedBytes; }

constexpr auto kCapacity = [] {
  std::array<std::uint32_t, BlockPool::kClasses> blocks{};
  for (std::uint32_t c = 0; c < BlockPool::kClasses; ++c)
    blocks[c] = static_cast<std::uint32_t>(std::clamp<std::size_t>(kMagazineBytes / BlockPool::block_bytes(c), 1, 512));
  return blocks;
}();

void* plain_new(std::size_t bytes) {
  memory_accounts().charge(bytes);
  for (const bool last : {false, true}) {
    if (void* const block = ::operator new (bytes, std::align_val_t{64}, std::nothrow)) return block;
    if (!last) trim_cache();
  }
  memory_accounts().discharge(bytes);
  throw_out_of_memory(bytes);
}

void plain_delete(void* block, std::size_t bytes) noexcept {
  ::operator delete (block, std::align_val_t{64});
  memory_accounts().discharge(bytes);
}

}  // namespace

class SharedBlocks {
 public:
  using Block = BlockPool::Block;
  using Magazines = BlockPool::Magazines;
  /// A list of blocks of one class. While it is shared its first block holds the list of lists.
  struct Magazine {
    Block* first;
    std::uint32_t blocks;
  };

  Magazine take(std::uint32_t c);
  void give(std::uint32_t c, Magazine magazine) noexcept;
  std::size_t trim() noexcept;
  /// Bytes of blocks that are in no one's hands.
  std::size_t cached_bytes();

  /// A thread's magazines: known here from its first slow visit until it ends.
  struct Lease {
    Lease();
    ~Lease();
    Magazines* magazines;
    Lease *previous = nullptr, *next = nullptr;
  };
  /// In a process that was forked: the threads of the one before are not there.
  void forget_other_threads();
  /// False once the thread is ending, or where each allocation is to be a point that may fail: its blocks then come
  /// from and go to the shared lists one by one.
  static bool enter();
  /// Hands a thread's own blocks of the class to the shared lists.
  void give_all(Magazines& m, std::uint32_t c) noexcept;

 private:
  struct SharedMagazine {
    Block* next;
    SharedMagazine* next_magazine;
    std::uint32_t blocks;
  };
  static_assert(sizeof(SharedMagazine) <= 64);
  Magazine pop(std::uint32_t c);
  Magazine carve(std::uint32_t c);
  Magazine cut(std::uint32_t c, std::size_t blocks);

  ForkSafeMutex mutex_;  // of the lists and the register
  std::array<SharedMagazine*, BlockPool::kClasses> lists_{};
  Lease* leases_ = nullptr;
  ForkSafeMutex slab_mutex_;   // held while a slab is mapped, which may trim the lists: so always taken before mutex_
  std::byte* slab_ = nullptr;  // what is left of it is a multiple of the smallest block
  std::atomic<std::size_t> slab_bytes_{0};
};

namespace {

SharedBlocks& shared_blocks() {
  static SharedBlocks* const blocks = [] {
    at_fork(ForkStage::memory, {{}, {}, [] { shared_blocks().forget_other_threads(); }});
    return new SharedBlocks;  // never destroyed: static tensors are released after it
  }();
  return *blocks;
}

enum class ThreadState : std::uint8_t { fresh, running, ending };
constinit thread_local ThreadState thread_state = ThreadState::fresh;

}  // namespace

constinit thread_local BlockPool::Magazines BlockPool::local_[BlockPool::kClasses]{};

SharedBlocks::Lease::Lease() : magazines(BlockPool::local_) {
  thread_state = ThreadState::running;
  for (std::uint32_t c = 0; c < BlockPool::kClasses; ++c)
    magazines[c].room.store(kCapacity[c], std::memory_order_relaxed);
  SharedBlocks& shared = shared_blocks();
  const std::lock_guard lock(shared.mutex_);
  next = shared.leases_;
  if (next != nullptr) next->previous = this;
  shared.leases_ = this;
}

SharedBlocks::Lease::~Lease() {
  thread_state = ThreadState::ending;
  SharedBlocks& shared = shared_blocks();
  for (std::uint32_t c = 0; c < BlockPool::kClasses; ++c) {
    shared.give_all(magazines[c], c);
    magazines[c].room.store(0, std::memory_order_relaxed);
  }
  const std::lock_guard lock(shared.mutex_);
  (previous != nullptr ? previous->next : shared.leases_) = next;
  if (next != nullptr) next->previous = previous;
}

void SharedBlocks::forget_other_threads() {
  while (leases_ != nullptr && leases_->magazines != BlockPool::local_) leases_ = leases_->next;
  if (leases_ != nullptr) leases_->previous = leases_->next = nullptr;
}

[[gnu::noinline]] bool SharedBlocks::enter() {
  if (thread_state == ThreadState::ending) return false;
  if (thread_state == ThreadState::fresh && injects_faults()) return false;
  static thread_local Lease lease;  // its destructor is registered here, off the fast path
  return true;
}

void SharedBlocks::give_all(Magazines& m, std::uint32_t c) noexcept {
  const std::uint32_t blocks = kCapacity[c] - m.room.load(std::memory_order_relaxed);
  m.room.store(kCapacity[c], std::memory_order_relaxed);
  if (Block* const loaded = std::exchange(m.loaded, nullptr)) give(c, {loaded, blocks});
  if (Block* const spare = m.spare.exchange(nullptr, std::memory_order_relaxed)) give(c, {spare, kCapacity[c]});
}

SharedBlocks::Magazine SharedBlocks::pop(std::uint32_t c) {
  const std::lock_guard lock(mutex_);
  SharedMagazine* const top = lists_[c];
  if (top == nullptr) return {nullptr, 0};
  lists_[c] = top->next_magazine;
  Block* const rest = top->next;
  const std::uint32_t blocks = top->blocks;
  return {::new (static_cast<void*>(top)) Block{rest}, blocks};
}

/// Every block is touched here, once: a page fault in the middle of recording would cost more than the record.
SharedBlocks::Magazine SharedBlocks::cut(std::uint32_t c, std::size_t blocks) {
  const std::size_t bytes = BlockPool::block_bytes(c);
  Magazine magazine{nullptr, static_cast<std::uint32_t>(blocks)};
  for (std::size_t at = blocks * bytes; at != 0; at -= bytes)
    magazine.first = ::new (slab_ + at - bytes) Block{magazine.first};
  slab_ += blocks * bytes;
  slab_bytes_.fetch_sub(blocks * bytes, std::memory_order_relaxed);
  return magazine;
}

SharedBlocks::Magazine SharedBlocks::carve(std::uint32_t c) {
  const std::size_t bytes = BlockPool::block_bytes(c);
  const std::lock_guard lock(slab_mutex_);
  if (const std::size_t left = slab_bytes_.load(std::memory_order_relaxed); left < bytes) {
    if (left != 0) give(0, cut(0, left / BlockPool::block_bytes(0)));
    memory_accounts().charge(kHugePage);
    void* const slab = map_huge_pages(kHugePage);
    if (slab == nullptr) {
      memory_accounts().discharge(kHugePage);
      throw_out_of_memory(bytes);
    }
    slab_ = static_cast<std::byte*>(slab);
    slab_bytes_.store(kHugePage, std::memory_order_relaxed);
  }
  return cut(c, std::min<std::size_t>(kCapacity[c], slab_bytes_.load(std::memory_order_relaxed) / bytes));
}

SharedBlocks::Magazine SharedBlocks::take(std::uint32_t c) {
  if (const Magazine magazine = pop(c); magazine.first != nullptr) {
    if (!is_carved(c)) memory_accounts().set_busy(BlockPool::block_bytes(c));
    return magazine;
  }
  if (is_carved(c)) return carve(c);
  return {::new (plain_new(BlockPool::block_bytes(c))) Block{nullptr}, 1};
}

void SharedBlocks::give(std::uint32_t c, Magazine magazine) noexcept {
  if (!is_carved(c) && !memory_accounts().set_idle(BlockPool::block_bytes(c)))
    return plain_delete(magazine.first, BlockPool::block_bytes(c));  // these magazines hold one block
  const std::lock_guard lock(mutex_);
  Block* const rest = magazine.first->next;
  lists_[c] = ::new (static_cast<void*>(magazine.first)) SharedMagazine{rest, lists_[c], magazine.blocks};
}

std::size_t SharedBlocks::trim() noexcept {
  std::size_t returned = 0;
  for (std::uint32_t c = 0; c < BlockPool::kClasses; ++c) {
    if (is_carved(c)) continue;
    if (thread_state == ThreadState::running) give_all(BlockPool::local_[c], c);
    for (Magazine m = pop(c); m.first != nullptr; m = pop(c)) {
      ::operator delete (m.first, std::align_val_t{64});
      memory_accounts().discharge_idle(BlockPool::block_bytes(c));
      returned += BlockPool::block_bytes(c);
    }
  }
  return returned;
}

std::size_t SharedBlocks::cached_bytes() {
  std::size_t bytes = slab_bytes_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (std::uint32_t c = 0; c < BlockPool::kClasses; ++c) {
    std::size_t blocks = 0;
    if (is_carved(c))  // the others are in the accounts
      for (const SharedMagazine* m = lists_[c]; m != nullptr; m = m->next_magazine) blocks += m->blocks;
    for (const Lease* lease = leases_; lease != nullptr; lease = lease->next) {
      const Magazines& m = lease->magazines[c];
      blocks += kCapacity[c] - m.room.load(std::memory_order_relaxed);
      if (m.spare.load(std::memory_order_relaxed) != nullptr) blocks += kCapacity[c];
    }
    bytes += blocks * BlockPool::block_bytes(c);
  }
  return bytes;
}

void* BlockPool::allocate_slow_path(std::uint32_t c) {
  SharedBlocks& shared = shared_blocks();
  if (!SharedBlocks::enter()) {
    if (fails_here(FaultKind::allocation)) throw_out_of_memory(block_bytes(c));
    const SharedBlocks::Magazine m = shared.take(c);
    if (m.blocks > 1) shared.give(c, {m.first->next, m.blocks - 1});
    return m.first;
  }
  Magazines& m = local_[c];
  SharedBlocks::Magazine next{m.spare.exchange(nullptr, std::memory_order_relaxed), kCapacity[c]};
  if (next.first == nullptr) next = shared.take(c);
  m.loaded = next.first->next;
  m.room.store(kCapacity[c] - next.blocks + 1, std::memory_order_relaxed);
  return next.first;
}

void BlockPool::release_slow_path(void* block, std::uint32_t c) noexcept {
  SharedBlocks& shared = shared_blocks();
  if (!SharedBlocks::enter()) return shared.give(c, {::new (block) Block{nullptr}, 1});
  Magazines& m = local_[c];
  if (m.room.load(std::memory_order_relaxed) == 0) {
    if (Block* const spare = m.spare.load(std::memory_order_relaxed)) shared.give(c, {spare, kCapacity[c]});
    m.spare.store(std::exchange(m.loaded, nullptr), std::memory_order_relaxed);
    m.room.store(kCapacity[c], std::memory_order_relaxed);
  }
  m.room.store(m.room.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  m.loaded = ::new (block) Block{m.loaded};
}

void* BlockPool::allocate_plain(std::uint32_t c) {
  if (fails_here(FaultKind::allocation)) throw_out_of_memory(block_bytes(c));
  return plain_new(block_bytes(c));
}
void BlockPool::release_plain(void* block, std::uint32_t c) noexcept { plain_delete(block, block_bytes(c)); }

MemoryStats memory_stats() {
  const MemoryAccounts& accounts = memory_accounts();
  MemoryStats stats;
  stats.cached_bytes = accounts.idle.load(std::memory_order_relaxed) + shared_blocks().cached_bytes();
  const std::size_t reserved = accounts.reserved.load(std::memory_order_relaxed);
  stats.live_bytes = reserved > stats.cached_bytes ? reserved - stats.cached_bytes : 0;
  stats.peak_bytes = accounts.peak.load(std::memory_order_relaxed);
  return stats;
}

void reset_peak_memory() {
  memory_accounts().peak.store(0, std::memory_order_relaxed);
  memory_accounts().note_peak();
}

std::size_t trim_cache() {
  PrepackedWeights::trim();  // which become idle
  return trim_large_buffers() + shared_blocks().trim();
}

std::size_t set_cache_limit(std::size_t bytes) {
  const std::size_t before = memory_accounts().cache_limit.exchange(bytes, std::memory_order_relaxed);
  if (memory_accounts().idle.load(std::memory_order_relaxed) > bytes) trim_cache();
  return before;
}

std::size_t set_memory_limit(std::size_t bytes) {
  return memory_accounts().memory_limit.exchange(bytes, std::memory_order_relaxed);
}

}  // namespace fermata
