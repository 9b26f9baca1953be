// See pending_bound.h.
#include "frontend/engine/pending_bound.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>

#include "fermata/inspect.h"
#include "runtime/environment.h"
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

/// Where loops are cut. A chain that reaches the bound is searched for the turn of a loop, and one call site of the
/// turn is kept: from then on the chain is cut at that site, after so many turns, wherever the loop began. So one plan
/// serves a whole loop.
struct CutSite {
  std::uint64_t site = 0;
  /// Of the chain that is cut: a number of turns that is a power of two, so that lengths of loops divide.
  std::uint32_t depth = 0;
  std::uint64_t last = 0;  // what had been recorded when it was cut last
};
/// Sites share a set by their hash; the one of a set that has not been cut at for longest gives way.
using CutSites = std::array<CutSite, 4>;

CutSites& sites_beside(std::uint64_t site) {
  using All = std::array<CutSites, 16>;
  static thread_local const auto all = std::make_unique<All>();
  return (*all)[site % all->size()];
}
CutSite* find_cut_site(std::uint64_t site) {
  for (CutSite& kept : sites_beside(site))
    if (kept.site == site) return &kept;
  return nullptr;
}
/// What a plan of a loop should have along its chain: more saves little of what a sync costs, and takes longer to
/// compile.
constexpr std::uint32_t kCutDepth = 64;

void keep_cut_site(const Node& at, std::uint32_t turn) {
  const std::uint32_t limit = pending_limit.load(memory_order_relaxed);
  const std::uint32_t turns = std::bit_ceil((kCutDepth + turn - 1) / turn);
  const std::uint64_t site = site_of(at);
  CutSite* known = find_cut_site(site);
  if (known == nullptr) known = &*std::ranges::min_element(sites_beside(site), {}, &CutSite::last);
  const CutSite kept = *known = {site, std::min(turns * turn, limit), recorded_nodes};
  for (std::uint32_t from = cut_from.load(memory_order_relaxed); from > kept.depth;)
    if (cut_from.compare_exchange_weak(from, kept.depth, memory_order_relaxed)) return;
}

/// Depths are taken from the operands anew: what was computed since does not count any more.
void measure_depths(Node* n) {
  static thread_local const auto mine = std::make_unique<Walk>();
  Walk& walk = *mine;
  Node* const roots[] = {n};
  walk.run(roots, true);
  for (const Walk::Entry& e : walk.order)
    if (e.storage == nullptr) {
      const Node* const deepest = deepest_operand(*e.node);
      e.node->depth.store(deepest == nullptr ? 1 : deepest->depth.load(memory_order_relaxed) + 1, memory_order_relaxed);
    }
}

/// How many operands a node is, without those that only the tape holds.
std::uint64_t readers_of(const Node& n) {
  const std::uint64_t edges = n.refs.load(memory_order_relaxed) & 0xffffffffu;
  return edges - std::min<std::uint64_t>(edges, n.tape.load(memory_order_relaxed));
}

/// The bound was reached at `n`: computes the chain up to a node in the last turn of the loop, if the call site of `n`
/// shows that there is one, so that what is left pending is less than a turn. The node that most others read is likely
/// what a turn hands on.
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
  tensor_hooks.materialize(at, "the bound on pending nodes", where);
  measure_depths(n);
}

}  // namespace

std::atomic<std::uint32_t> cut_from{pending_limit.load()};

std::uint64_t call_site(Op op, std::source_location where) {
  const auto file = reinterpret_cast<std::uintptr_t>(where.file_name());
  const std::uint64_t line = std::uint64_t{where.line()} << 32 | where.column();
  std::uint64_t site = (line ^ file ^ static_cast<std::uint64_t>(op) << 48) * 0x9e3779b97f4a7c15ull;
  site ^= site >> 32;
  return site | 1u << 31;
}

void cut_chain(Node* n, std::source_location where) {
  const std::uint32_t depth = n->depth.load(memory_order_relaxed);
  CutSite* const kept = backward_pass_cuts ? nullptr : find_cut_site(site_of(*n));
  if (kept != nullptr && depth >= kept->depth) {
    // No chain grows that fast: it hangs on one that was recorded before, and is shorter by what was computed of that
    // since.
    if (recorded_nodes - kept->last < kept->depth) measure_depths(n);
    if (n->depth.load(memory_order_relaxed) < kept->depth) return;
    kept->last = recorded_nodes;
    tensor_hooks.materialize(n, "the bound on pending nodes", where);
  } else if (depth >= pending_limit.load(memory_order_relaxed)) {
    cut_at_bound(n, where);
  }
}

std::uint32_t set_pending_limit(std::uint32_t depth) {
  cut_from = std::max(depth, 2u);
  return pending_limit.exchange(std::max(depth, 2u));
}
std::uint32_t bound_on_pending() { return pending_limit.load(memory_order_relaxed); }

}  // namespace fermata
