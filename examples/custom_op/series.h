// Operators on series of numbers, in the namespace series.
#pragma once

#include <fermata/fermata.h>

namespace series {

/// The exponential moving average along the last axis: y[0] = (1 - decay) x[0], y[t] = decay y[t-1] + (1 - decay) x[t].
///
/// Shapes   x [..S, T] -> [..S, T]
/// DType    floats are kept, integers and bool become f32; f16 and bf16 are computed in f32.
/// Errors   ShapeError for a 0-d tensor.
fermata::Tensor ema(const fermata::Tensor& x, double decay, fermata::Location where = fermata::Location::current());

/// sign(x) log(1 + |x|): a symmetric logarithm.
fermata::Tensor symlog(const fermata::Operand& x);

/// The number of runs of ema's kernel.
int kernel_runs();

}  // namespace series
