// See retained_leaves.h.
#include "runtime/retained_leaves.h"

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "ir/fork.h"
#include "runtime/memory_accounts.h"

namespace fermata {
namespace {

struct Listed {
  ForkSafeMutex mutex;
  std::unordered_set<Node*> leaves;
};
Listed& listed() {
  static Listed* const all = new Listed;  // static tensors outlive it otherwise
  return *all;
}

}  // namespace

void list_leaf(Node* leaf) noexcept try {
  if ((leaf->depth.load(std::memory_order_relaxed) & kListedLeaf) != 0) return;
  Listed& all = listed();
  const std::lock_guard lock(all.mutex);
  all.leaves.insert(leaf);
  leaf->depth.fetch_or(kListedLeaf, std::memory_order_relaxed);
} catch (const std::bad_alloc&) {}

void unlist_leaf(Node* leaf) noexcept {
  Listed& all = listed();
  const std::lock_guard lock(all.mutex);
  all.leaves.erase(leaf);
}

std::atomic<std::size_t>& retained_limit() { return memory_accounts().retained_limit; }

std::size_t bytes_of_unnamed_leaves() {
  Listed& all = listed();
  const std::lock_guard lock(all.mutex);
  std::size_t bytes = 0;
  std::unordered_map<const Storage*, std::uint32_t> shared;  // leaves met of buffers that have several
  for (const Node* const leaf : all.leaves) {
    const Storage* const storage = leaf->storage.load(std::memory_order_acquire);
    if (storage->has_no_buffer() || !is_unnamed(*leaf)) continue;
    const std::uint32_t owners = storage->refs.load(std::memory_order_relaxed);
    if (owners == 1 || ++shared[storage] == owners) bytes += storage->bytes;
  }
  return bytes;
}

}  // namespace fermata
