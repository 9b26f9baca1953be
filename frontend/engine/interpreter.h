// The interpreter: runs a graph op by op with `call` kernels. Used for new structures that are cheaper to run than to
// compile.
#pragma once

#include <functional>
#include <span>

#include "runtime/events.h"
#include "runtime/storage.h"
#include "runtime/tensor_view.h"
#include "runtime/walk.h"

namespace fermata {

/// Computes every pending node of the walk; outputs[i] receives the buffer of walk.outputs[i]. Intermediate buffers are
/// freed after their last use.
void interpret(const Walk& walk, std::span<StoragePtr> outputs);
/// interpret() that calls `observe` after each call except views. Host scalars are passed as operands of rank 0.
/// `observe` may throw.
using ObserveCall = std::function<void(const Node& n, std::span<const TensorView> operands, const TensorView& result)>;
void interpret(const Walk& walk, std::span<StoragePtr> outputs, const ObserveCall& observe);

/// Runs `op`, which is the node's or a copy, on views of its operands. Allocates a dense result of the given sizes
/// unless there is a buffer for it.
void call_node(const Node& n, Op op, DType operand, std::span<const TensorView> inputs,
               std::span<const std::int64_t> sizes, StoragePtr& result);
/// Broadcasts operand `k` of a pointwise node to the shape of the result: updates the operand's view, or makes one for
/// a host scalar. `strides` stores its strides.
void stretch_operand(const Node& n, unsigned k, TensorView& view, Shape& strides);

/// The event of a node's call.
const EventInfo* event_of_call(const Node& n, Op op);

/// A rough estimate of the cost of interpreting, in ns.
double interpretation_cost(const Walk& walk);

}  // namespace fermata
