// The interpreter: runs a graph op by op with `call` kernels. That is what happens to a structure that is met for the
// first time and is cheaper to run than to compile.
#pragma once

#include <functional>
#include <span>

#include "runtime/events.h"
#include "runtime/storage.h"
#include "runtime/tensor_view.h"
#include "runtime/walk.h"

namespace fermata {

/// Computes every pending node of the walk; outputs[i] becomes the buffer of walk.outputs[i]. Buffers in between are
/// freed as soon as their last reader has run.
void interpret(const Walk& walk, std::span<StoragePtr> outputs);
/// The same; `observe` sees each call after it has run, views aside. Host scalars are operands of rank 0. It may throw.
using ObserveCall = std::function<void(const Node& n, std::span<const TensorView> operands, const TensorView& result)>;
void interpret(const Walk& walk, std::span<StoragePtr> outputs, const ObserveCall& observe);

/// Runs `op`, the node's or a copy, on views of its operands. The result gets a buffer: dense, of these sizes.
void call_node(const Node& n, Op op, DType operand, std::span<const TensorView> inputs,
               std::span<const std::int64_t> sizes, StoragePtr& result);
/// Operand `k` of a pointwise node as its kernel sees it, in the shape of the result: changes the view of the operand,
/// or makes that of a host scalar. `strides` are those of the view.
void stretch_operand(const Node& n, unsigned k, TensorView& view, Shape& strides);

/// A call of a node, as an event.
const EventInfo* event_of_call(const Node& n, Op op);

/// A rough prediction of what interpreting costs, in ns.
double interpretation_cost(const Walk& walk);

}  // namespace fermata
