// See takeovers.h.
#include "frontend/engine/takeovers.h"

#include <algorithm>
#include <utility>

#include "runtime/bound_plan.h"

namespace fermata {
namespace {

bool is_of_this_run_alone(const Walk::Entry& leaf) {
  const Node& n = *leaf.node;
  return !leaf.is_kept && n.refs.load(std::memory_order_acquire) == leaf.uses * Node::kEdge && n.is_dense_leaf() &&
         leaf.storage->unique() && leaf.storage->is_own();
}

}  // namespace

void Takeovers::choose_some(const Walk& walk, const Plan& plan, std::span<const Overwrite> allowed) {
  outputs_.assign(walk.outputs.size(), false), places_.assign(plan.leaf_records.size(), false);
  for (const Overwrite& o : allowed) {
    const Walk::Entry& leaf = walk.order[plan.leaf_records[o.leaf]];
    if (outputs_[o.output] || places_[o.leaf] || !is_of_this_run_alone(leaf)) continue;
    outputs_[o.output] = places_[o.leaf] = true;
    all_.push_back({o.output, o.leaf, leaf.node, leaf.storage});
  }
}

void Takeovers::announce(FunctionRef<bool(const Node*)> may_read) {
  if (all_.empty()) return;
  std::size_t shown = 0;
  for (; shown < all_.size(); ++shown) {
    Storage *expected = all_[shown].storage, *const busy = Storage::overwrite_sentinel();
    if (all_[shown].leaf->storage.compare_exchange_strong(expected, busy)) continue;
    busy->release();
    break;
  }
  if (shown == all_.size() && std::ranges::none_of(all_, [&](const Takeover& t) { return may_read(t.leaf); })) return;
  for (std::size_t i = 0; i < shown; ++i) all_[i].leaf->storage.exchange(all_[i].storage)->release();
  all_.clear();
}

void Takeovers::take(std::span<LeafBuffer> leaves, std::span<StoragePtr> results) const {
  for (const Takeover& t : all_) {
    results[t.output].reset(t.storage), t.storage->forget_packed();
    leaves[t.place].buffer = nullptr;  // nothing else lies there: the storage is unique
  }
}

void Takeovers::give_back(bool overwritten, std::span<StoragePtr> results) {
  for (const Takeover& t : std::exchange(all_, {})) {
    if (!overwritten) {
      static_cast<void>(results[t.output].release());
      t.leaf->storage.exchange(t.storage)->release();
    } else {
      t.leaf->storage.exchange(Storage::overwritten())->release();
    }
  }
}

}  // namespace fermata
