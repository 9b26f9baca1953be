// Elements of 4 and 2 bits as files hold them: several in a byte, the first in its lowest bits. In memory each is a
// byte.
#pragma once

#include <string>
#include <string_view>

#include "runtime/tensor.h"

namespace fermata {

/// Bytes that so many elements take when they are packed.
std::size_t packed_bytes(DType dtype, std::size_t count);
/// A tensor of such elements, which are `packed`.
Tensor unpacked_elements(std::string_view packed, DType dtype, const Shape& shape);
/// The elements of x in row-major order; bits that pad are 0.
std::string packed_elements(const Tensor& x, Location where);

}  // namespace fermata
