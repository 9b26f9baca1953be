// Call kernels over complex numbers, and their registration. Some operands and results may be real or bool.
//
// They are C++ loops over std::complex, not formulas: complex values do not fuse. Any strides; results do not
// depend on the number of threads.
#pragma once

#include "dispatch/kernel_files.h"

namespace fermata {

/// The kernel of an op for complex operands.
inline void add_complex_kernel(Op op, CallKernel call, std::source_location where = std::source_location::current()) {
  add_variant(op, BackendKey::cpu,
              {.name = "complex", .dtypes = kComplex, .call = call, .ships = Ships::with_math, .where = where});
}

/// Between complex dtypes, from real ones and bool, and to bool.
void complex_cast_call(const CallArgs& args);

}  // namespace fermata
