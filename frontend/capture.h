// The kernels of the Capture key: a call becomes a node.
#pragma once

#include <cstdint>

namespace fermata {

void register_capture_kernels();

/// A chain of pending nodes longer than this is computed on the spot, cut where the same source line was met last, so
/// that a loop that never looks at its result runs in flat memory and keeps meeting the same plan. The default is 512;
/// FERMATA_PENDING_LIMIT sets it. Returns the limit before.
std::uint32_t set_pending_limit(std::uint32_t depth);

/// Nodes recorded by this thread since the process began.
std::uint64_t recorded_nodes();

}  // namespace fermata
