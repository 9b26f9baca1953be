// See pending_bound.h.
#include "frontend/engine/pending_bound.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "fermata/inspect.h"
#include "fermata/retained.h"
#include "frontend/engine/sync.h"
#include "ir/per_thread.h"
#include "runtime/environment.h"
#include "runtime/retained_leaves.h"
#include "runtime/tensor.h"
#include "runtime/walk.h"

namespace fermata {

constinit thread_local bool backward_pass_cuts = false;
constinit thread_local std::uint64_t recorded_nodes = 0;

namespace {

using std::memory_order_relaxed;

std::uint32_t limit_from_environment() {
  constexpr std::uint64_t kDefault = 512, kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(environment_number("FERMATA_PENDING_LIMIT", kDefault), 2, kMost));
}
std::atomic<std::uint32_t> pending_limit{limit_from_environment()};

/// The depth from which chains may be cut, without regard to retained bytes.
std::atomic<std::uint32_t> shallowest_cut{pending_limit.load()};
/// Whether pending calls retain so many bytes that calls which free some are computed.
std::atomic<bool> keeps_too_much{false};
void set_cut_from() { cut_from.store(keeps_too_much.load() ? 0 : shallowest_cut.load()); }

std::uint64_t site_of(const Node& n) { return call_site(n.op, n.where); }

/// The pending operand with the longest chain below it.
Node* deepest_operand(const Node& n) {
  Node* deepest = nullptr;
  for (std::size_t i = 0; i < n.operand_count(); ++i) {
    Node* in = n.operand(i);
    if (in == nullptr || !in->pending()) continue;
    if (deepest == nullptr || in->depth.load(memory_order_relaxed) > deepest->depth.load(memory_order_relaxed))
      deepest = in;
  }
  return deepest;
}

/// Where loops are cut. A chain that reaches the limit is searched for an iteration of a loop, and one call site of it
/// is stored: from then on the chain is cut at that site, after a fixed number of iterations, wherever the loop began.
/// So one plan serves a whole loop.
struct CutSite {
  std::uint64_t site = 0;
  /// Of the chain that is cut: the number of iterations, a power of two, so that it divides lengths of loops.
  std::uint32_t depth = 0;
  std::uint64_t last = 0;  // nodes recorded at the last cut
};
/// Sites share a set by their hash; the least recently cut one of a set is evicted.
using CutSites = std::array<CutSite, 4>;

CutSites& sites_beside(std::uint64_t site) {
  using All = std::array<CutSites, 16>;
  static constinit thread_local PerThread<All> all_of_thread;
  All& all = all_of_thread.get();
  return all[site % all.size()];
}
CutSite* find_cut_site(std::uint64_t site) {
  for (CutSite& kept : sites_beside(site))
    if (kept.site == site) return &kept;
  return nullptr;
}
/// The depth of the plan of a loop: more saves little of the overhead of a sync, and takes longer to
/// compile.
constexpr std::uint32_t kCutDepth = 64;

void keep_cut_site(const Node& at, std::uint32_t turn) {
  const std::uint32_t limit = pending_limit.load(memory_order_relaxed);
  const std::uint32_t turns = std::bit_ceil((kCutDepth + turn - 1) / turn);
  const std::uint64_t site = site_of(at);
  CutSite* known = find_cut_site(site);
  if (known == nullptr) known = &*std::ranges::min_element(sites_beside(site), {}, &CutSite::last);
  const CutSite kept = *known = {site, std::min(turns * turn, limit), recorded_nodes};
  for (std::uint32_t from = shallowest_cut.load(memory_order_relaxed); from > kept.depth;)
    if (shallowest_cut.compare_exchange_weak(from, kept.depth, memory_order_relaxed)) break;
  set_cut_from();
}

Walk& walk_under(Node* n, bool roots_only) {
  static constinit thread_local PerThread<Walk> walk_of_thread;
  Walk& walk = walk_of_thread.get();
  Node* const roots[] = {n};
  walk.run(roots, roots_only);
  return walk;
}

/// Of a node that may be a leaf by now.
void set_depth(Node* n, std::uint32_t depth) {
  std::uint32_t before = n->depth.load(memory_order_relaxed);
  while (!n->depth.compare_exchange_weak(before, (before & kListedLeaf) | depth, memory_order_relaxed)) {}
}

/// Recomputes depths from the operands, excluding what has been computed since.
void measure_depths(Node* n) {
  look_at_nodes([&] {
    for (const Walk::Entry& e : walk_under(n, true).order)
      if (e.storage == nullptr) {
        const Node* const deepest = deepest_operand(*e.node);
        set_depth(e.node, deepest == nullptr ? 1 : deepest->depth.load(memory_order_relaxed) + 1);
      }
  });
}

/// The number of operands that refer to a node, except those that only the tape holds.
std::uint64_t readers_of(const Node& n) {
  const std::uint64_t edges = n.refs.load(memory_order_relaxed) & 0xffffffffu;
  return edges - std::min<std::uint64_t>(edges, n.tape.load(memory_order_relaxed));
}

/// The limit was reached at `n`: computes the chain up to a node of the last iteration of the loop, if the call site
/// of `n` shows a loop, so that less than an iteration remains pending. The node that most others read is likely
/// the carry.
void cut_at_bound(Node* n, std::source_location where) {
  measure_depths(n);
  const std::uint32_t depth = n->depth.load(memory_order_relaxed);
  if (depth < pending_limit.load(memory_order_relaxed)) return;
  const std::uint64_t site = site_of(*n);
  Node* at = deepest_operand(*n);
  Node* previous = at;
  while (previous != nullptr && site_of(*previous) != site) previous = deepest_operand(*previous);
  if (previous != nullptr) {
    Node* const last = at;
    at = previous;
    for (Node* m = last; m != previous; m = deepest_operand(*m))
      if (readers_of(*m) > readers_of(*at)) at = m;
    keep_cut_site(*at, depth - previous->depth.load(memory_order_relaxed));
  }
  if (at == nullptr) return;
  tensor_hooks.materialize(at, "the limit on pending nodes", where);
  measure_depths(n);
}

// Bytes that pending calls retain. They are counted whenever new leaves amount to a sixteenth of the limit; from
// three quarters of the limit until less than half of it is retained, each call that frees more than it takes runs.

/// Bytes of the leaves that this thread's calls have added since the last count.
constinit thread_local std::size_t taken_on = 0;
/// Calls that this thread records before it looks for one to compute.
constinit thread_local std::uint64_t looks_again_at = 0;

struct DropEdge {
  void operator()(Node* n) const { drop_edge(n); }
};
using HeldNode = std::unique_ptr<Node, DropEdge>;
/// The last calls that would free memory once their operands lose their handles, as those of an iteration at its end.
std::vector<HeldNode>& watched_calls() {
  static constinit thread_local PerThread<std::vector<HeldNode>> calls;
  return calls.get();
}
void count_retained() {
  taken_on = 0;
  const std::size_t limit = retained_limit().load(memory_order_relaxed), bytes = bytes_of_unnamed_leaves();
  const bool before = keeps_too_much.load(memory_order_relaxed);
  const bool now = limit != 0 && bytes >= (before ? limit / 2 : limit / 4 * 3);
  if (now != before) keeps_too_much.store(now), set_cut_from();
  if (!now) watched_calls().clear();
}

std::size_t bytes_of(const Node& n) { return static_cast<std::size_t>(element_count(n.sizes())) * byte_size(n.dtype); }

/// Whether a call reads more bytes than it writes: else computing it frees nothing.
bool makes_less_than_it_reads(const Node& n) {
  std::size_t read = 0;
  for (std::size_t i = 0; i < n.operand_count(); ++i)
    if (const Node* const in = n.operand(i)) read += bytes_of(*in);
  return read > bytes_of(n);
}

/// Bytes of the leaves that are freed when a call is computed, minus those of its results. Of a leaf that other calls
/// read too, the call has its share: computing all of them frees it. `possible`: if only calls held them.
struct Freed {
  std::int64_t now = 0, possible = 0;
};
Freed freed_by(Node* n) {
  Freed freed;
  look_at_nodes([&] {
    const Walk& walk = walk_under(n, false);
    looks_again_at = recorded_nodes + walk.order.size() / 16;
    for (const Walk::Entry& e : walk.order) {
      if (e.storage == nullptr || e.storage->has_no_buffer() || e.node->tape.load(memory_order_relaxed) != 0) continue;
      const auto readers = static_cast<std::uint32_t>(e.node->refs.load(memory_order_relaxed));
      const std::uint32_t leaves = e.storage->refs.load(memory_order_relaxed);  // over this buffer
      if (readers == 0 || leaves == 0) continue;
      const double share = std::min(1.0, static_cast<double>(e.uses) / readers) / leaves;
      const auto bytes = static_cast<std::int64_t>(share * static_cast<double>(e.storage->bytes));
      freed.possible += bytes;
      if (is_unnamed(*e.node)) freed.now += bytes;
    }
    for (const std::uint32_t output : walk.outputs)
      freed.now -= static_cast<std::int64_t>(bytes_of(*walk.order[output].node));
    freed.possible -= static_cast<std::int64_t>(bytes_of(*n));
  });
  return freed;
}

void compute_to_free(Node* n, std::source_location where) {
  tensor_hooks.materialize(n, "the limit on bytes that pending calls retain", where);
  count_retained();
}

constexpr std::size_t kMostWatched = 8;

void watch(Node* n) {
  std::vector<HeldNode>& calls = watched_calls();
  if (calls.size() == kMostWatched) calls.erase(calls.begin());
  calls.reserve(kMostWatched);
  n->refs.fetch_add(Node::kEdge, memory_order_relaxed);
  calls.emplace_back(n);
}

/// The last one first: the others may be its operands.
void compute_watched(std::source_location where) {
  std::vector<HeldNode> calls = std::exchange(watched_calls(), {}), left;
  for (; !calls.empty(); calls.pop_back()) {
    Node* const n = calls.back().get();
    const bool is_wanted = n->pending() && n->refs.load(memory_order_relaxed) != Node::kEdge;
    if (is_wanted && freed_by(n).now >= static_cast<std::int64_t>(kLeastListed))
      compute_to_free(n, where);
    else if (is_wanted)
      left.push_back(std::move(calls.back()));
  }
  if (!keeps_too_much.load(memory_order_relaxed)) return;
  std::ranges::reverse(left);
  watched_calls() = std::move(left);
}

/// Whether the call was computed to free the memory that it retains.
bool free_retained(Node* n, std::source_location where) {
  if (recorded_nodes < looks_again_at || !makes_less_than_it_reads(*n)) return false;
  constexpr auto kLeast = static_cast<std::int64_t>(kLeastListed);
  const Freed freed = freed_by(n);
  if (freed.now >= kLeast) return compute_to_free(n, where), true;
  if (freed.possible >= kLeast) compute_watched(where), watch(n);
  return false;
}

}  // namespace

std::atomic<std::uint32_t> cut_from{pending_limit.load()};

void note_leaf(Node* leaf, std::size_t bytes) {
  list_leaf(leaf);
  taken_on += bytes;
}

void settle_depth(Node* n) {
  if ((n->depth.load(memory_order_relaxed) & kReadsLargeLeaf) == 0) return;
  std::uint32_t below = 0;
  for (std::size_t i = 0; i < n->operand_count(); ++i) {
    Node* const in = n->operand(i);
    if (in == nullptr) continue;
    if (const Storage* const storage = in->storage.load(std::memory_order_acquire); storage == nullptr)
      below = std::max(below, in->depth.load(memory_order_relaxed));
    else if (storage->bytes >= kLeastListed)
      note_leaf(in, storage->bytes);
  }
  n->depth.store(below + 1, memory_order_relaxed);
  const std::size_t limit = retained_limit().load(memory_order_relaxed);
  if (limit != 0 && taken_on >= limit / 16) count_retained();
}

std::size_t retained_bytes() { return bytes_of_unnamed_leaves(); }
std::size_t set_retained_limit(std::size_t bytes) {
  const std::size_t before = retained_limit().exchange(bytes);
  count_retained();
  return before;
}

std::uint64_t call_site(Op op, std::source_location where) {
  const auto file = reinterpret_cast<std::uintptr_t>(where.file_name());
  const std::uint64_t line = std::uint64_t{where.line()} << 32 | where.column();
  std::uint64_t site = (line ^ file ^ static_cast<std::uint64_t>(op) << 48) * 0x9e3779b97f4a7c15ull;
  site ^= site >> 32;
  return site | 1u << 31;
}

void cut_chain(Node* n, std::source_location where) {
  settle_depth(n);
  if (n->depth.load(memory_order_relaxed) < cut_from.load(memory_order_relaxed)) return;
  if (keeps_too_much.load(memory_order_relaxed) && free_retained(n, where)) return;
  const std::uint32_t depth = n->depth.load(memory_order_relaxed);
  CutSite* const kept = backward_pass_cuts ? nullptr : find_cut_site(site_of(*n));
  if (kept != nullptr && depth >= kept->depth) {
    // No chain grows that fast: it extends an earlier chain, and is shorter by what was computed of that
    // since.
    if (recorded_nodes - kept->last < kept->depth) measure_depths(n);
    if (n->depth.load(memory_order_relaxed) < kept->depth) return;
    kept->last = recorded_nodes;
    tensor_hooks.materialize(n, "the limit on pending nodes", where);
  } else if (depth >= pending_limit.load(memory_order_relaxed)) {
    cut_at_bound(n, where);
  }
}

std::uint32_t set_pending_limit(std::uint32_t depth) {
  shallowest_cut = std::max(depth, 2u);
  set_cut_from();
  return pending_limit.exchange(std::max(depth, 2u));
}
std::uint32_t bound_on_pending() { return pending_limit.load(memory_order_relaxed); }

}  // namespace fermata
