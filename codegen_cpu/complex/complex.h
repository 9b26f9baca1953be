// Call kernels over complex numbers, and their registration. Some operands and results may be real or bool.
//
// They are C++ loops over std::complex. What is arithmetic on parts fuses as well (ir/complex_form.h), with the same
// bits. Any strides; results do not depend on the number of threads.
#pragma once

#include <complex>

#include "dispatch/kernel_files.h"

namespace fermata {

/// The kernel of an op for complex operands.
inline void add_complex_kernel(Op op, CallKernel call, std::source_location where = std::source_location::current()) {
  add_variant(op, BackendKey::cpu,
              {.name = "complex", .dtypes = kComplex, .call = call, .ships = Ships::with_math, .where = where});
}

/// As in the textbook: std::complex mends products of infinite numbers, which takes longer than the product.
template <class T> std::complex<T> product(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// Between complex dtypes, from real ones and bool, and to bool.
void complex_cast_call(const CallArgs& args);

}  // namespace fermata
