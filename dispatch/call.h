// Backend cells in eager mode: infer, allocate, choose the variant, run.
#pragma once

#include "dispatch/kernel_table.h"
#include "ir/infer.h"
#include "runtime/steps/call_step.h"

namespace fermata {

/// Fills the backend's cell of every op with the generic kernel of its family, which selects among the op's variants.
void register_call_kernels(BackendKey backend);

/// The inner loop for dense operands of one shape and single elements; null if the op has none, or there are too many
/// elements.
InnerLoop inner_loop(Op op, BackendKey backend, DType operand, std::int64_t elements);

/// The type of the result of a general call, with its errors at the caller's line.
inline TensorType result_type(const Call& call, std::span<const TensorType> operands, const Attributes& attributes) {
  if (attributes.is_inferred) return attributes.wanted;
  return infer(call.entry.op, operands, attributes.integers, attributes.wanted, call.where, attributes.subgraphs);
}

/// A materialized node as a kernel argument. `strides` is filled if the node does not store its own.
TensorView view_of(const Node& node, Shape& strides);

/// Runs a call step of a plan: the dispatch layer's half of runtime/steps/call_step.h.
ChosenKernel select_step(const CallStep& step, const CallArgs& args);

/// Eager calls with divided operands. Installed by frontend/distributed.
struct DistributedCalls {
  Tensor (*pointwise)(const Call&, std::span<const Operand* const>) = nullptr;
  Tensor (*general)(const Call&, std::span<const Tensor>, const Attributes&) = nullptr;
};
extern constinit DistributedCalls distributed_calls;

/// The strided leaf that a view op makes of a materialized node. Returns null if the node is pending, or a reshape
/// needs a copy.
Node* view_of_leaf(Op op, const Node& x, const TensorType& type, std::span<const std::int64_t> attributes);

}  // namespace fermata
