// What the functions of fermata/linalg.h and fermata/fft.h do to their operands first.
#pragma once

#include <vector>

#include "runtime/tensor.h"

namespace fermata::linalg {

/// Integers and bool as f32; the rest as it is, for inference to judge.
Tensor solvable(const Tensor& x, Location where);
/// Both, in one dtype where there is one.
std::vector<Tensor> solvable(const Tensor& lhs, const Tensor& rhs, Location where);
/// |x|^2, without a root.
Tensor squared_magnitude(const Tensor& x, Location where);

}  // namespace fermata::linalg
