// Scalar primitives (ir/prims.def) as expressions of the kernel language.
#pragma once

#include <string>

#include "ir/scalar_program.h"

namespace fermata::gpu {

/// How a value of a dtype is declared. f16 and bf16 are their bits.
std::string_view value_type(DType dtype);
/// How an element lies in memory: bool is a byte.
std::string_view memory_type(DType dtype);
/// A constant with these bits.
std::string constant(DType dtype, std::uint64_t bits);
/// The primitive on operands that are names. UnsupportedError where there is none for the dtypes.
std::string primitive(Prim prim, DType type, DType operand, const std::string& a, const std::string& b,
                      const std::string& c);

}  // namespace fermata::gpu
