// Kernels of integers with their numbers as constants, and in the narrowest types that hold what is computed.
//
// (a.astype(i32) * 77 + b.astype(i32) * 178) / 255 of bytes fits into 16 bits if these are the numbers: a vector then
// holds twice as many, and a division by a constant is a multiplication. Which types these are follows from ranges:
// those of the loads are those of their dtypes. Where only the lowest bits of a value matter, as in what is stored as
// bytes, the others are not computed.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/kernel.h"

namespace fermata {

/// A kernel of the same launches, which gives the same bits where their integers (KernelLaunch::scalars) are those of
/// `numbers`. nullopt if it would not be faster.
std::optional<Kernel> narrowed_kernel(const Kernel& kernel, const std::uint64_t* numbers);

/// Whether some numbers may give one.
bool may_narrow(const Kernel& kernel);

}  // namespace fermata
