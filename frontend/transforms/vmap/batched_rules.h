// Batching rules: how a call on tensors that each stand for a batch is made as one call on the batches.
//
// Pointwise ops need none but the alignment of axes (batched_kernels.cpp). Reductions share one rule, each irregular op
// names its own (frontend/ops/op_rules.h); an op without a rule runs once for every element of the batch, which stats()
// counts.
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

// Rules that ops share.
/// Operand 0 as it is, with attributes for axes that have moved one to the back.
Tensor moved_axes(const BatchedCall& call, std::span<const std::int64_t> attributes);
/// What the op needs to know is the result's type.
Tensor batched_by_type(const BatchedCall& call);
/// Every operand gets the batch in front, and the axes that attributes name move one to the back.
Tensor batched_in_front(const BatchedCall& call);

}  // namespace fermata
