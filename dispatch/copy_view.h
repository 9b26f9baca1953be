// A tensor copied to another place of the same type, dense and row-major.
#pragma once

#include <source_location>

#include "ir/key_set.h"
#include "runtime/tensor_view.h"

namespace fermata {

void copy_view(const TensorView& from, void* to, BackendKey backend, std::source_location where);

}  // namespace fermata
