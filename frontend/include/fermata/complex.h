// Complex numbers: dtypes c64 and c128, with parts of f32 and f64.
//
// Arithmetic, powers, exponentials, logarithms and trigonometry, comparisons for equality, sums, products, matrix
// products and everything that moves elements take complex operands; a real operand beside one is converted. conj,
// real, imag and angle are rows of the op table and declared in fermata/ops.h; they take real numbers too. Host numbers
// of C++ are real; tensor(std::complex<double>(0, 1)) is a 0-d tensor of c64, which does not widen what it meets.
#pragma once

#include "runtime/operand.h"

namespace fermata {

/// Complex numbers from their real and imaginary parts, which broadcast.
///
/// DType    of f32 and what converts to it c64, of f64 c128.
/// Errors   ShapeError where shapes do not broadcast; DTypeError for complex parts.
Tensor complex(const Operand& re, const Operand& im);
/// Is the dtype of x a complex one?
bool is_complex(const Tensor& x, Location where = Location::current());

}  // namespace fermata
