// Elementary functions as expansions of primitives, shared by every backend.
//
// Function templates over the value type V of ir/scalar_program.h: recorded once for the code generators, instantiated
// over SIMD types for the eager kernels, so all backends give the same bits. Element types float and double have their
// own polynomials; NaN, infinities, signed zeros and subnormals follow the C library. Errors over the whole range, in
// ulp (tests/ir/scalar_math_test.cpp measures them):
//
//          f32   f64              f32   f64              f32   f64
//   exp    1.0   1.1     log2     2.1   1.2     tanh     2.5   2.5
//   exp2   1.0   1.1     log10    3.3   2.0     sigmoid  2.5   2.4
//   expm1  1.5   2.0     log1p    1.7   1.5     erf      1.1   2.3
//   log    1.0   1.0     sin cos  1.6   1.6     gelu     3.5   4.0
//   pow    1.1   1.3                            softplus 2.6   2.6
//
#pragma once

#include "ir/scalar_math/arithmetic.h"
#include "ir/scalar_math/error_function.h"
#include "ir/scalar_math/exponential.h"
#include "ir/scalar_math/hyperbolic.h"
#include "ir/scalar_math/inverse_trigonometric.h"
#include "ir/scalar_math/logarithm.h"
#include "ir/scalar_math/power.h"
#include "ir/scalar_math/random.h"
#include "ir/scalar_math/trigonometric.h"
