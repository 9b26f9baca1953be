// Division of vectors of f32 by one number, without the processor's division, which takes as long as sixteen products.
//
// The bits are those of the true quotient. With high = RN(1 / d), low = RN(RN(1 - d high) high) and x and d far from
// overflow and underflow, q = RN(x high + RN(x low)) is off by hardly more than half an ulp, so it is one of the two
// neighbors of x / d; r = x - d q is then exact, and RN(q + r high) is x / d rounded correctly (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990, theorem 8.3; Muller et al.,
// "Handbook of floating-point arithmetic", 2nd edition, section 4.7). Groups with an x for which this does not hold are
// divided as usual.
#pragma once

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// What is computed once for a divisor.
struct UniformDivisor {
  Value *divisor, *high, *low;  // in all lanes
  Value* is_fit;                // i1: else divide by it as usual
};

/// `splat` is the divisor in all lanes, `length` how many numbers will be divided by it.
UniformDivisor prepare_divisor(CodeBuilder& b, Value* divisor, Value* splat, Value* length);
/// Quotients of vectors.
Values divide_by_uniform(CodeBuilder& b, const Values& dividends, const UniformDivisor& by);

}  // namespace fermata::jit
