// Syncs: from "this value is wanted" to buffers filled.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "runtime/node.h"

namespace fermata {

/// Installs the hooks of runtime/tensor.h that compute values.
void install_sync();

/// Computes what is pending under the roots, with everything under them that a handle still names.
void sync_nodes(std::span<Node* const> roots, const char* reason, std::source_location where);

}  // namespace fermata
