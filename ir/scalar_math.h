// Elementary functions as expansions of primitives, shared by every backend.
//
// Function templates over the value type V of ir/scalar_program.h: recorded once for the code generators, instantiated
// over SIMD types for the eager kernels, so all backends give the same bits. Element types float and double have their
// own polynomials; NaN, infinities, signed zeros and subnormals follow the C library.
//
// ir/ops/accuracy.def has the errors over the whole range, in ulp:
//
//   tests/ir/scalar_math_test.cpp        compares f32 and f64 with long double, over samples of all bit patterns
//   tests/conformance/numerics_test.cpp  compares f32 with f64, through the engine, over all of them on request
//   docs/numerics.md                     shows them
//
// Every backend and both modes share these expressions, so changing one changes the bits of results everywhere.
//
#pragma once

#include "ir/scalar_math/arithmetic.h"
#include "ir/scalar_math/bessel.h"
#include "ir/scalar_math/error_function.h"
#include "ir/scalar_math/exponential.h"
#include "ir/scalar_math/gamma_functions.h"
#include "ir/scalar_math/hyperbolic.h"
#include "ir/scalar_math/inverse_trigonometric.h"
#include "ir/scalar_math/logarithm.h"
#include "ir/scalar_math/normal_quantile.h"
#include "ir/scalar_math/power.h"
#include "ir/scalar_math/random.h"
#include "ir/scalar_math/special.h"
#include "ir/scalar_math/trigonometric.h"
