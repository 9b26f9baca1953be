// Limits on pending work: on the depth of node chains, with the call sites at which unrolled loops are cut
// (docs/adr/022), and on the bytes that pending calls retain.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "runtime/node.h"

namespace fermata {

/// The maximum depth of pending nodes.
std::uint32_t bound_on_pending();
/// Whether a backward pass on this thread cuts a long chain itself (transforms/backward_cuts.h).
extern constinit thread_local bool backward_pass_cuts;

/// Nodes recorded by this thread so far.
extern constinit thread_local std::uint64_t recorded_nodes;

/// The depth from which chains may be cut: below the limit if a loop was found, 0 while pending calls retain too many
/// bytes.
extern std::atomic<std::uint32_t> cut_from;
/// A flag in the depth of a node being recorded: one of its operands is a leaf of at least kLeastListed bytes. One
/// comparison then detects both long chains and retained bytes.
inline constexpr std::uint32_t kReadsLargeLeaf = 1u << 31;
/// Replaces that flag by the node's depth, and lists its leaves.
void settle_depth(Node* n);
/// Computes the pending nodes under a newly recorded node if its chain is long enough.
void cut_chain(Node* n, std::source_location where);
inline void cut_long_chain(Node* n, std::source_location where) {
  if (n->depth.load(std::memory_order_relaxed) >= cut_from.load(std::memory_order_relaxed)) [[unlikely]]
    cut_chain(n, where);
}

/// Notes that a pending call reads a leaf of `bytes` (at least kLeastListed).
void note_leaf(Node* leaf, std::size_t bytes);

/// A hash of the call site of an op, never 0.
std::uint64_t call_site(Op op, std::source_location where);

}  // namespace fermata
