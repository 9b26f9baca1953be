// Equality of tensors, exact and approximate.
#pragma once

#include "runtime/operand.h"

namespace fermata {

/// bool: |x - y| <= atol + rtol * |y|, elementwise. Equal infinities are close; so are two NaNs if `equal_nan`.
/// Computed in f32 or wider.
///
/// Shapes   broadcast.
/// Source   NumPy, isclose.
Tensor isclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
               Location where = Location::current());
/// Returns whether all elements are close. Syncs; inside compile(fn) use all(isclose(x, y)).
bool allclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
              Location where = Location::current());
/// Returns whether shapes and all elements are equal. Syncs.
bool array_equal(const Tensor& x, const Tensor& y, Location where = Location::current());

}  // namespace fermata
