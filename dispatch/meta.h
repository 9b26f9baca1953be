// Tensors of the Meta backend: a type and no data.
#pragma once

#include "runtime/tensor.h"

namespace fermata {

/// What a Meta kernel returns: the type of its result.
Tensor meta_tensor(const TensorType& type);
/// The Meta kernels of the table's ops.
void register_meta_kernels();

}  // namespace fermata
