// Scalar primitives (ir/prims.def) as expressions of the kernel language.
#pragma once

#include <string>

#include "ir/scalar_program.h"

namespace fermata::gpu {

/// The type of a value of a dtype. f16 and bf16 are integers with their bits.
std::string_view value_type(DType dtype);
/// The type of an element in memory: bool is a byte.
std::string_view memory_type(DType dtype);
/// A constant with these bits.
std::string constant(DType dtype, std::uint64_t bits);
/// The expression of a primitive on named operands. UnsupportedError if it is not defined for the dtypes.
std::string primitive(Prim prim, DType type, DType operand, const std::string& a, const std::string& b,
                      const std::string& c);

}  // namespace fermata::gpu
