// Discrete Fourier transforms as `call` kernels: lines along one axis of tensors in any strides.
//
// Lines are transformed in f64 whatever their dtype, by the header-only kissfft where their length has small factors
// only, and else as a convolution (Bluestein, 1970). Results do not depend on the number of threads.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// Whether this build has kissfft.
bool has_fft();
/// fft, rfft and irfft. Without kissfft it throws UnsupportedError FM2071.
void fft_call(const CallArgs& args);

}  // namespace fermata
