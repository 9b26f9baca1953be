// Batching rules: how a call on tensors that each stand for a batch is made as one call on the batches.
//
// Pointwise ops need none but the alignment of axes (batched_kernels.cpp). The other ops of a family share one rule,
// each irregular op has its own; an op without a rule runs once for every element of the batch, which stats() counts.
#pragma once

#include <cstdint>
#include <span>

#include "dispatch/operator.h"
#include "ir/infer.h"

namespace fermata {

struct BatchedOperand {
  Tensor value;
  bool batched;  // axis 0 of `value` is the batch; else it is the same for the whole batch
};

/// A call with at least one batched operand. Attributes are those of one element of the batch, with every error
/// checked.
struct BatchedCall {
  Op op;
  std::span<const BatchedOperand> operands;
  const Attributes& attributes;
  const TensorType& type;  // of one element's result
  std::int64_t size;       // of the batch

  /// Operand k with the batch in front, stretched where it has none.
  Tensor with_batch(std::size_t k) const;
  /// The shape of one element of operand k.
  Shape shape(std::size_t k) const;
  /// The type of the whole result.
  TensorType whole() const;
};

/// The result with the batch in front.
using BatchingRule = Tensor (*)(const BatchedCall&);

/// Null where the op has none.
BatchingRule batching_rule(Op op);
/// Gives an op another rule, or none; returns the one before. Not while calls are in progress on other threads.
BatchingRule set_batching_rule(Op op, BatchingRule rule);

/// What happens without a rule: one call for every element of the batch, and the results stacked.
Tensor loop_over_batch(const BatchedCall& call);

// The rules of ir/ops/irregular.def that are more than another list of axes: batched_irregular.cpp.
Tensor batched_take(const BatchedCall& call);
Tensor batched_index_add(const BatchedCall& call);
Tensor batched_update(const BatchedCall& call);
Tensor batched_matmul(const BatchedCall& call);  // of any dtype
/// Those of ir/ops/linalg.def and fft.def, and of complex: batched_linalg.cpp. Null for other ops.
BatchingRule linalg_batching_rule(Op op);

/// The rules of ir/ops/neural.def: batched_neural.cpp.
BatchingRule neural_rule(Op op);

}  // namespace fermata
