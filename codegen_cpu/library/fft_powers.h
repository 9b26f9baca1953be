// Fourier transforms of f32 lines whose length is a power of two, in f32.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// Computes fft, rfft or irfft where it can; otherwise gives false and leaves the result alone.
bool transform_powers_of_two(const CallArgs& args);

}  // namespace fermata
