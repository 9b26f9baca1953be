// Linear algebra as `call` kernels, through LAPACK: stacks of matrices in any strides, of f32, f64, c64 and c128.
//
// The matrices of a stack are shared by our own threads; each call of LAPACK runs on one. (Two threading runtimes at
// once ruin both, so scripts/setup.sh installs the OpenBLAS that has none.) Results do not depend on the number of
// threads.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// Whether this build has LAPACK.
bool has_lapack();
/// The kernel of an op of ir/ops/linalg.def, or null for others. Without LAPACK it throws UnsupportedError FM2070.
CallKernel lapack_kernel(Op op);

}  // namespace fermata
