// The kernels of the Capture key: a call becomes a node.
#pragma once

#include <cstdint>

namespace fermata {

void register_capture_kernels();

/// Nodes recorded by this thread since the process began.
std::uint64_t recorded_nodes();

}  // namespace fermata
