// Loops over c64, compiled once per instruction set (loops/*.cpp): formulas of real functions over
// vectors of real and of imaginary parts.
//
// Elements outside their domain, such as infinite ones, are computed one by one, by <complex>.
#pragma once

#include <cstdint>

#include "codegen_cpu/eager/eager.h"

namespace fermata {

struct ComplexLoops {
  eager::InnerLoop multiply, divide, exp, log, angle, abs;
  /// The sums of real and imaginary parts of dense numbers, distributed over 64 lanes in turn.
  void (*sum)(const float* x, std::int64_t count, double* sums);
};

/// Computes one element by <complex>; `b` is null if there is one operand.
using ExactComplex = void (*)(const float* a, const float* b, float* result);
void exact_divide(const float* a, const float* b, float* result);
void exact_exp(const float* a, const float* b, float* result);
void exact_log(const float* a, const float* b, float* result);

#define FERMATA_COMPLEX_LOOPS(isa)    \
  namespace complex_loops::isa {      \
  const ComplexLoops& loops_of_isa(); \
  }
FERMATA_COMPLEX_LOOPS(baseline)
FERMATA_COMPLEX_LOOPS(avx2)
FERMATA_COMPLEX_LOOPS(avx512)
#undef FERMATA_COMPLEX_LOOPS

/// The loops of the instruction set in use.
const ComplexLoops& complex_loops_in_use();

}  // namespace fermata
