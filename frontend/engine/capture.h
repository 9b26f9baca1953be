// The kernels of the Capture key: a call becomes a node.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dispatch/operator.h"

namespace fermata {

void register_capture_kernels();
/// The call-time kernels of a backend that compiles: each call is a plan of one node, through the same caches.
void register_kernels_at_once(BackendKey backend);

/// Eager mode on values that are divided among processes.
void install_distributed_calls();

/// Records a call of an op that is not pointwise. `context` is that of a boxed call: the node has it before anybody can
/// compute it.
Tensor record_node(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes,
                   std::uint32_t context = 0);
/// What is not recorded runs now; a function that is being compiled would keep the result for ever: UserError FM1701.
void require_no_scope(const Call& call, std::string_view why);

}  // namespace fermata
