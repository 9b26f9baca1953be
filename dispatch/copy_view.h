// Copies a tensor to dense, row-major memory of the same shape and dtype.
#pragma once

#include <source_location>

#include "ir/key_set.h"
#include "runtime/tensor_view.h"

namespace fermata {

void copy_view(const TensorView& from, void* to, BackendKey backend, std::source_location where);

}  // namespace fermata
