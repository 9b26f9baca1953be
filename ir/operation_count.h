// How many arithmetic operations a call does: what profiles compare with the speed of the machine.
#pragma once

#include <cstdint>
#include <span>

#include "ir/op.h"

namespace fermata {

/// Whether an op is a product or a convolution: its kernels read operands in any order at about the same speed.
bool is_product(Op op);
/// Of products and convolutions a multiplication and an addition count as two. Of all others every element of the
/// largest operand, or of the result, counts as one.
double operation_count(Op op, std::span<const std::span<const std::int64_t>> operands,
                       std::span<const std::int64_t> result);

}  // namespace fermata
