// The exact remainder of floats in LLVM IR: Prim::rem.
//
// The fast path is emitted inline. The long division (ir/scalar_math/float_remainder.h) is ten times as much code and
// rarely runs, so it is a function of the module, emitted once per type.
#pragma once

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// a - trunc(a / b) * b of f32 or f64, scalars or vectors.
Value* float_remainder(CodeBuilder& b, Value* dividend, Value* divisor);

}  // namespace fermata::jit
