// Lowers primitives (ir/prims.def) to LLVM IR, for scalars and vectors alike.
//
// The meaning is exact: no fast-math flag is ever set, no undefined behavior of LLVM is reached whatever the operands,
// and nothing becomes a call of a library.
#pragma once

#include "codegen_cpu/jit/code_builder.h"
#include "ir/scalar_program.h"

namespace fermata::jit {

/// A primitive with operands; `type` is the result's dtype, `operand` that of its operands (for select: of what it
/// selects). Refuses what ir/scalar_interpreter.h does not define.
Value* lower_primitive(CodeBuilder& b, Prim prim, DType type, DType operand, Value* x, Value* y, Value* z);

/// Prim::convert.
Value* lower_convert(CodeBuilder& b, DType from, DType to, Value* x);

}  // namespace fermata::jit
