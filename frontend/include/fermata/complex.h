// Complex numbers: dtypes c64 and c128, with f32 and f64 parts.
//
// Arithmetic, powers, exponentials, logarithms and trigonometry, comparisons for equality, sums, products, matrix
// products and all data movement take complex operands; a real operand is converted if the other one is complex. conj,
// real, imag and angle are rows of the op table, declared in fermata/ops.h; they take real operands too. Host numbers
// in C++ are real; tensor(std::complex<double>(0, 1)) is a 0-d c64 tensor, which does not widen other operands.
#pragma once

#include "runtime/operand.h"

namespace fermata {

/// Builds complex numbers from their real and imaginary parts, which broadcast.
///
/// DType    c64 for f32 parts and dtypes that convert to f32; c128 for f64.
/// Errors   ShapeError if shapes do not broadcast; DTypeError for complex parts.
Tensor complex(const Operand& re, const Operand& im);
/// Whether the dtype of x is complex.
bool is_complex(const Tensor& x, Location where = Location::current());

}  // namespace fermata
