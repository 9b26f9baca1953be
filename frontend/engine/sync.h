// Syncs: from "this value is wanted" to buffers filled.
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

/// Computes what is pending under the roots, with everything under them that a handle still names.
void sync_nodes(std::span<Node* const> roots, const char* reason, std::source_location where);

/// Lets go of the plans that this thread, and threads that have ended, have run last. Other threads do once
/// PlanCache has been cleared and they look for another plan.
void forget_bound_plans();

/// Calls a function that follows pending nodes down, which other threads may be computing: none goes meanwhile.
void look_at_nodes(FunctionRef<void()> read);

}  // namespace fermata
