// Elementary functions as expansions of primitives, shared by every backend.
//
// Function templates over the value type V of ir/scalar_program.h: recorded once for the code generators, instantiated
// over SIMD types for the eager kernels, so all backends give the same bits. Element types float and double have their
// own polynomials; NaN, infinities, signed zeros and subnormals follow the C library. Errors over the whole range, in ulp
// (tests/ir/scalar_math_test.cpp measures them):
//
#pragma once

#include "ir/scalar_math/arithmetic.h"
#include "ir/scalar_math/error_function.h"
#include "ir/scalar_math/exponential.h"
#include "ir/scalar_math/logarithm.h"
#include "ir/scalar_math/power.h"
#include "ir/scalar_math/random.h"
#include "ir/scalar_math/trigonometric.h"
