// The error for failed allocations other than tensors, thrown instead of a bare std::bad_alloc.
#pragma once

#include <new>
#include <string_view>

#include "runtime/tensor.h"

namespace fermata {

/// OutOfMemoryError FM3001.
[[noreturn]] void throw_no_memory(std::string_view function, Location where);

}  // namespace fermata
