// Division of f32 and f64 vectors by a uniform value without a hardware division, which takes as long as sixteen
// multiplications.
//
// The bits are those of the true quotient. With high = RN(1 / d), low = RN(RN(1 - d high) high) and x and d far from
// overflow and underflow, q = RN(x high + RN(x low)) is off by little more than half an ulp, so it is one of the two
// neighbors of x / d; r = x - d q is then exact, and RN(q + r high) is x / d rounded correctly (Markstein, "Computation
// of elementary functions on the IBM RISC System/6000 processor", 1990, theorem 8.3; Muller et al., "Handbook of
// floating-point arithmetic", 2nd edition, section 4.7). Groups with an x out of this range are divided in hardware.
#pragma once

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// Values computed once per divisor.
struct UniformDivisor {
  Value *divisor, *high, *low;  // in all lanes
  Value* is_fit;                // i1; if false, divide in hardware
};

/// `splat` is the divisor in all lanes, `length` the number of dividends.
UniformDivisor prepare_divisor(CodeBuilder& b, Value* divisor, Value* splat, Value* length);
/// Quotients of vectors. Whole numbers are known to be in range.
Values divide_by_uniform(CodeBuilder& b, const Values& dividends, const UniformDivisor& by, bool are_whole);

}  // namespace fermata::jit
