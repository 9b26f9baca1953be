// Views of values that are repeated very often.
//
// A plan copies what a reshape reads through other views. Where a small value is repeated 2^28 times and more, it would
// need terabytes, although strides of 0 can express the result. So such views are recorded with the broadcast last.
#pragma once

#include "dispatch/operator.h"
#include "runtime/tensor.h"

namespace fermata {

/// The result of a view op of type `type` as a broadcast of a view of what `x` broadcasts. Undefined unless x is
/// pending, repeats much, and strides can express the result.
Tensor record_vast_view(const Call& call, const Tensor& x, const TensorType& type, const Attributes& attributes);

}  // namespace fermata
