// Lowers primitives (ir/prims.def) to LLVM IR, for scalars and vectors alike.
//
// Semantics are exact: no fast-math flags, no LLVM undefined behavior for any operands, and no library calls.
#pragma once

#include "codegen_cpu/jit/code_builder.h"
#include "ir/scalar_program.h"

namespace fermata::jit {

/// Lowers a primitive; `type` is the result's dtype, `operand` that of its operands (for select: of the selected
/// values). Throws for combinations that ir/scalar_interpreter.h does not define.
Value* lower_primitive(CodeBuilder& b, Prim prim, DType type, DType operand, Value* x, Value* y, Value* z);

/// Prim::convert.
Value* lower_convert(CodeBuilder& b, DType from, DType to, Value* x);
/// That of f32 to bf16, for values that have so few digits (ir/narrow_values.h).
Value* cut_to_bf16(CodeBuilder& b, Value* x);

}  // namespace fermata::jit
