// Are the elements of two tensors equal, or nearly?
#pragma once

#include "runtime/operand.h"

namespace fermata {

/// bool: |x - y| <= atol + rtol |y|, element by element; infinities are close to themselves, NaN to NaN if `equal_nan`.
/// Computed in f32 at least.
///
/// Shapes   broadcast.
/// Source   NumPy, isclose.
Tensor isclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
               Location where = Location::current());
/// Whether all elements are close. Reads the answer, so it syncs; inside compile(fn) use all(isclose(x, y)).
bool allclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
              Location where = Location::current());
/// Whether shapes and all elements are equal. Reads the answer.
bool array_equal(const Tensor& x, const Tensor& y, Location where = Location::current());

}  // namespace fermata
