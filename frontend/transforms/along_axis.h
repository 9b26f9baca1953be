// Elements chosen along an axis, for each line by itself: what sorting hands on, and its way back.
#pragma once

#include "frontend/transforms/autograd_located.h"

namespace fermata::vjp {

/// result[.., i, ..] = x[.., index[.., i, ..], ..]: index has the shape of x but for the axis.
Located gather_along(const Located& x, const Located& index, std::int64_t axis);
/// Zeros of `shape` with values[.., i, ..] added at [.., index[.., i, ..], ..].
Located add_along(const Shape& shape, const Located& index, const Located& values, std::int64_t axis);

}  // namespace fermata::vjp
