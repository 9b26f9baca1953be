// The bound on chains of pending nodes, and the call sites at which loops that are written out are cut (docs/adr/022).
#pragma once

#include <atomic>
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

/// Chains as deep as this may be cut: less than the bound where a loop was found.
extern std::atomic<std::uint32_t> cut_from;
/// Computes what is under a node that was recorded just now, if the chain that ends there is long enough.
void cut_chain(Node* n, std::source_location where);
inline void cut_long_chain(Node* n, std::source_location where) {
  if (n->depth.load(std::memory_order_relaxed) >= cut_from.load(std::memory_order_relaxed)) [[unlikely]]
    cut_chain(n, where);
}

/// A number for a call site of an op, never 0.
std::uint64_t call_site(Op op, std::source_location where);

}  // namespace fermata
