// Results that do not lie row-major, for kernels that write no other.
#pragma once

#include "runtime/function_ref.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Calls `run` with a row-major result, without an epilogue, and copies that.
void run_row_major(const CallArgs& args, FunctionRef<void(const CallArgs&)> run);

}  // namespace fermata
