// The op `update` on an operand that nothing else reads: into its own buffer instead of a copy.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>

#include "runtime/tensor.h"

namespace fermata {

/// Writes `values` to the elements of `target` at offset + sum(position * stride), counted in row-major elements, and
/// changes nothing else of `target`. Returns false, having done nothing, unless an eager call of `update` with these
/// operands would only run the engine's own kernel on the CPU, and nothing but `target` refers to its buffer.
bool update_in_place(const Tensor& target, const Tensor& values, std::int64_t offset,
                     std::span<const std::int64_t> strides, std::source_location where);

}  // namespace fermata
