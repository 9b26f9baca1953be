// What a call throws where the engine gets no memory for what it keeps beside tensors: never a bare std::bad_alloc.
#pragma once

#include <new>
#include <string_view>

#include "runtime/tensor.h"

namespace fermata {

/// OutOfMemoryError FM3001.
[[noreturn]] void throw_no_memory(std::string_view function, Location where);

}  // namespace fermata
