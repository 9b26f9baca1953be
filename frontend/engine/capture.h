// The kernels of the Capture key: a call becomes a node.
#pragma once

#include <cstdint>

#include "ir/key_set.h"

namespace fermata {

void register_capture_kernels();
/// The call-time kernels of a backend that compiles: each call is a plan of one node, through the same caches.
void register_kernels_at_once(BackendKey backend);

/// The longest chain of pending nodes.
std::uint32_t bound_on_pending();
/// A backward pass through a long chain is at work on this thread, and cuts it by itself (transforms/backward_cuts.h).
extern constinit thread_local bool backward_pass_cuts;

/// Nodes recorded by this thread since the process began.
std::uint64_t recorded_nodes();

}  // namespace fermata
