// Tensors, and what is known of them, as text.
#pragma once

#include <iosfwd>
#include <string>

#include "runtime/tensor.h"

namespace fermata {

/// Nested brackets with aligned columns, and the dtype: "tensor([[1, 2],\n        [3, 4]], f32)". More than 1000
/// elements are cut to three at either end of each axis, and the shape is added. Floats have as many digits as tell
/// them apart, at most 4 after the point; very large or small ones make all of them scientific. Reads the value, so it
/// syncs.
std::string to_string(const Tensor& x, Location where = Location::current());
std::ostream& operator<<(std::ostream& out, const Tensor& x);
/// "[4, 8]", "f32", "cuda:1".
std::ostream& operator<<(std::ostream& out, const Shape& sizes);
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace fermata
