// The kernels of the Capture key, which record calls as nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dispatch/operator.h"

namespace fermata {

void register_capture_kernels();
/// The eager kernels of a backend that compiles: each call is a plan of one node, through the same caches.
void register_kernels_at_once(BackendKey backend);

/// Installs eager calls on sharded tensors.
void install_distributed_calls();

/// Records a call of an op that is not pointwise. `context` is for boxed calls; it is set before the node becomes
/// visible to other threads.
Tensor record_node(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes,
                   std::uint32_t context = 0);
/// Calls that are not recorded run immediately, and a function being compiled would capture the result as a constant.
/// Throws UserError FM1701 in that case.
void require_no_scope(const Call& call, std::string_view why);

}  // namespace fermata
