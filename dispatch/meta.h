// Tensors of the Meta backend: a type and no data.
#pragma once

#include <vector>

#include "dispatch/operator.h"
#include "runtime/tensor.h"

namespace fermata {

/// What a Meta kernel returns: the type of its result.
Tensor meta_tensor(const TensorType& type);
/// The types of what a recorded call gives: new values of the tensors that it writes, then its new results.
std::vector<TensorType> result_types(const OperatorEntry& entry, std::span<const TensorType> operands,
                                     std::span<const std::int64_t> arguments, std::source_location where);
/// The Meta kernels of the table's ops.
void register_meta_kernels();

}  // namespace fermata
