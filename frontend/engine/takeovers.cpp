// See takeovers.h.
#include "frontend/engine/takeovers.h"

#include <algorithm>
#include <utility>

#include "runtime/bound_plan.h"

namespace fermata {
namespace {

/// Whether only nodes of this walk read a leaf, whose memory is the engine's.
bool is_of_this_run_alone(const Walk::Entry& leaf) {
  const Node& n = *leaf.node;
  return !leaf.is_kept && n.refs.load(std::memory_order_acquire) == leaf.uses * Node::kEdge && leaf.storage->is_own();
}

}  // namespace

/// Whether all that shares the buffer of a leaf are leaves of this plan that are read before it is written, as in
/// x[i] += y: adds these to the views.
bool Takeovers::has_views_of_this_run_alone(const Walk& walk, const Plan& plan, const Overwrite& o) {
  constexpr std::uint32_t kMost = 8;
  const Walk::Entry& leaf = walk.order[plan.leaf_records[o.leaf]];
  const std::uint32_t users = leaf.storage->refs.load(std::memory_order_acquire);
  if (users == 1) return true;
  if (users > kMost) return false;
  const std::size_t before = views_.size();
  for (std::size_t i = 0; i < plan.leaf_records.size(); ++i) {
    const Walk::Entry& view = walk.order[plan.leaf_records[i]];
    if (i == o.leaf || view.storage != leaf.storage) continue;
    if (!is_of_this_run_alone(view) || plan.slots[plan.leaf_slots[i]].last_step >= o.step) break;
    views_.push_back({i, view.node, view.storage});
  }
  if (views_.size() - before == users - 1) return true;
  views_.resize(before);
  return false;
}

void Takeovers::choose_some(const Walk& walk, const Plan& plan, std::span<const Overwrite> allowed) {
  outputs_.assign(walk.outputs.size(), false), places_.assign(plan.leaf_records.size(), false);
  for (const Overwrite& o : allowed) {
    const Walk::Entry& leaf = walk.order[plan.leaf_records[o.leaf]];
    if (outputs_[o.output] || places_[o.leaf] || !is_of_this_run_alone(leaf) || !leaf.node->is_dense_leaf() ||
        !has_views_of_this_run_alone(walk, plan, o))
      continue;
    outputs_[o.output] = places_[o.leaf] = true;
    all_.push_back({o.output, o.leaf, leaf.node, leaf.storage});
  }
}

void Takeovers::announce(FunctionRef<bool(const Node*)> may_read) {
  if (all_.empty()) return;
  announced_.clear();
  for (const Takeover& t : all_) announced_.emplace_back(t.leaf, t.storage);
  for (const View& v : views_) announced_.emplace_back(v.leaf, v.storage);
  std::size_t shown = 0;
  for (; shown < announced_.size(); ++shown) {
    Storage *expected = announced_[shown].second, *const busy = Storage::overwrite_sentinel();
    if (announced_[shown].first->storage.compare_exchange_strong(expected, busy)) continue;
    busy->release();
    break;
  }
  const auto is_read = [&](const auto& announced) { return may_read(announced.first); };
  if (shown == announced_.size() && std::ranges::none_of(announced_, is_read)) return;
  for (std::size_t i = 0; i < shown; ++i) announced_[i].first->storage.exchange(announced_[i].second)->release();
  all_.clear(), views_.clear();
}

void Takeovers::take(std::span<LeafBuffer> leaves, std::span<StoragePtr> results) const {
  for (const Takeover& t : all_) {
    results[t.output].reset(t.storage), t.storage->forget_packed();
    leaves[t.place].buffer = nullptr;  // nothing else lies there: the storage is unique
  }
  for (const View& v : views_) leaves[v.place].buffer = nullptr, v.storage->release();
}

void Takeovers::give_back(bool overwritten, std::span<StoragePtr> results) {
  for (const View& v : std::exchange(views_, {})) {
    if (!overwritten) v.storage->retain();
    v.leaf->storage.exchange(overwritten ? Storage::overwritten() : v.storage)->release();
  }
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
