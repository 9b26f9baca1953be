// Division of integers. Vectors have no instruction for it, but floats hold quotients of half their width exactly
// enough, and doubles those of 64-bit integers that are not too large.
//
// Semantics are those of ir/scalar_interpreter.h: x / 0 is 0, x rem 0 is x, and x / -1 wraps around.
#pragma once

#include "codegen_cpu/jit/code_builder.h"
#include "ir/scalar_program.h"

namespace fermata::jit {

/// Quotients (towards zero), or remainders, of scalars or vectors.
Value* divide_integers(CodeBuilder& b, DType type, Value* x, Value* y, bool remainder);

/// One divisor of many vectors.
struct IntegerDivisor {
  Value *divisor, *reciprocal;  // in all lanes; 1 and its own for -1, and 0 for the reciprocal of 0
  Value* is_minus_one;          // in all lanes; null if integers have no sign
  Value* is_fit;                // i1; null if all numbers are fit to be divided as floats
};

/// Whether dividing by it as by an IntegerDivisor is faster: not by constants of few bits, which LLVM multiplies with,
/// nor by powers of two, which it shifts by.
bool prepares_integer_divisor(const Instr& divisor);
IntegerDivisor prepare_integer_divisor(CodeBuilder& b, DType type, Value* divisor);
Value* divide_by_uniform(CodeBuilder& b, DType type, Value* x, const IntegerDivisor& by, bool remainder);

}  // namespace fermata::jit
