// Call kernels over complex numbers, where other operands and results may be real or bool.
//
// They are loops in C++ over std::complex and no formulas: complex values do not fuse. Any strides; results do not
// depend on the number of threads.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// The kernel of an op for complex operands, or null where there is none.
CallKernel complex_kernel(Op op);

// Parts of the table, each in its file.
CallKernel complex_unary_kernel(Op op);
CallKernel complex_binary_kernel(Op op);
CallKernel complex_reduce_kernel(Op op);

/// complex(re, im): real operands, complex result.
void complex_from_parts_call(const CallArgs& args);
/// Between complex dtypes, from real ones and bool, and to bool.
void complex_cast_call(const CallArgs& args);
/// As four products of real matrices, by whichever kernel is the fastest.
void complex_matmul_call(const CallArgs& args);

}  // namespace fermata
