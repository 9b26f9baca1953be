// Syncs: computing pending values.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/node.h"

namespace fermata {

/// Installs the hooks of runtime/tensor.h that compute values.
void install_sync();

/// Computes the roots, and all pending nodes under them that still have a handle.
void sync_nodes(std::span<Node* const> roots, const char* reason, std::source_location where);

/// Drops the most recently run plans of this thread and of ended threads. Other threads drop theirs after PlanCache is
/// cleared, when they look up another plan.
void forget_bound_plans();

/// Calls a function that traverses pending nodes, which stay alive meanwhile even if other threads compute them.
void look_at_nodes(FunctionRef<void()> read);

}  // namespace fermata
