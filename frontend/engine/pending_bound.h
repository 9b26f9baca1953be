// The bounds on what is pending: on chains of nodes, with the call sites at which loops that are written out are cut
// (docs/adr/022), and on the bytes of buffers that pending calls keep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "runtime/node.h"

namespace fermata {

/// The longest chain of pending nodes.
std::uint32_t bound_on_pending();
/// A backward pass through a long chain is at work on this thread, and cuts it by itself (transforms/backward_cuts.h).
extern constinit thread_local bool backward_pass_cuts;

/// Nodes recorded by this thread since the process began.
extern constinit thread_local std::uint64_t recorded_nodes;

/// Chains as deep as this may be cut: less than the bound where a loop was found, 0 while pending calls keep too many
/// bytes.
extern std::atomic<std::uint32_t> cut_from;
/// In the depth of a node that is being recorded: one of its operands is a leaf of kLeastListed bytes or more. So one
/// comparison finds both what ends a long chain and what keeps many bytes.
inline constexpr std::uint32_t kReadsLargeLeaf = 1u << 31;
/// Gives a node with that mark its depth, and lists its leaves.
void settle_depth(Node* n);
/// Computes what is under a node that was recorded just now, if the chain that ends there is long enough.
void cut_chain(Node* n, std::source_location where);
inline void cut_long_chain(Node* n, std::source_location where) {
  if (n->depth.load(std::memory_order_relaxed) >= cut_from.load(std::memory_order_relaxed)) [[unlikely]]
    cut_chain(n, where);
}

/// A pending call reads a leaf of so many bytes, kLeastListed or more.
void note_leaf(Node* leaf, std::size_t bytes);

/// A number for a call site of an op, never 0.
std::uint64_t call_site(Op op, std::source_location where);

}  // namespace fermata
