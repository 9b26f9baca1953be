// Text output of tensors, shapes, dtypes and devices.
#pragma once

#include <iosfwd>
#include <string>

#include "runtime/tensor.h"

namespace fermata {

/// Nested brackets with aligned columns, and the dtype: "tensor([[1, 2],\n        [3, 4]], f32)". Tensors of more than
/// 1000 elements show three elements at either end of each axis, and the shape. Floats have as many digits as needed to
/// distinguish them, at most 4 decimals; very large or small ones switch all of them to scientific notation. Syncs.
std::string to_string(const Tensor& x, Location where = Location::current());
std::ostream& operator<<(std::ostream& out, const Tensor& x);
/// "[4, 8]", "f32", "cuda:1".
std::ostream& operator<<(std::ostream& out, const Shape& sizes);
std::ostream& operator<<(std::ostream& out, DType dtype);
std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace fermata
