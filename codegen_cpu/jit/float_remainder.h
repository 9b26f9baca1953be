// The exact remainder of floats in LLVM IR: Prim::rem.
//
// The quick path is built where the primitive stands. The long division (ir/scalar_math/float_remainder.h), which is
// ten times as much code and nearly never runs, is a function of the module, made once for a type.
#pragma once

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// a - trunc(a / b) * b of f32 or f64, scalars or vectors.
Value* float_remainder(CodeBuilder& b, Value* dividend, Value* divisor);

}  // namespace fermata::jit
