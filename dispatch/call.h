// Backend cells at call time: what eager mode runs. Infer, allocate, choose the variant, run.
#pragma once

#include "dispatch/kernel_table.h"
#include "runtime/steps/call_step.h"

namespace fermata {

/// Fills the backend's cell of every op with the generic kernel of its family, which looks up the op's variants.
void register_call_kernels(BackendKey backend);

/// The loop for dense operands of one shape and single elements; null where the op has none, or there is too much for
/// one.
InnerLoop inner_loop(Op op, BackendKey backend, DType operand, std::int64_t elements);

/// A materialized node as kernels see it. `strides` is filled where the node does not hold its own.
TensorView view_of(const Node& node, Shape& strides);

/// Runs a call step of a plan: the dispatch layer's half of runtime/steps/call_step.h.
ChosenKernel select_step(const CallStep& step, const CallArgs& args);

/// Makes calls in eager mode whose operands are divided among processes. Installed by frontend/distributed.
struct DistributedCalls {
  Tensor (*pointwise)(const Call&, std::span<const Operand* const>) = nullptr;
  Tensor (*general)(const Call&, std::span<const Tensor>, const Attributes&) = nullptr;
};
extern constinit DistributedCalls distributed_calls;

/// The node that a view op makes of a value: a strided leaf where the value is there, else nothing. Also nothing where
/// a reshape needs a copy.
Node* view_of_leaf(Op op, const Node& x, const TensorType& type, std::span<const std::int64_t> attributes);

}  // namespace fermata
