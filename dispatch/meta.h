// Meta tensors: a shape and dtype without data.
#pragma once

#include <vector>

#include "dispatch/operator.h"
#include "runtime/tensor.h"

namespace fermata {

/// Makes a Meta tensor; Meta kernels return them to give the type of a result.
Tensor meta_tensor(const TensorType& type);
/// The result types of a recorded call: the new values of the tensors that it writes, then its new results.
std::vector<TensorType> result_types(const OperatorEntry& entry, std::span<const TensorType> operands,
                                     std::span<const std::int64_t> arguments, std::source_location where);
/// The Meta kernels of the table's ops.
void register_meta_kernels();

}  // namespace fermata
