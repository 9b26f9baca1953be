// The number of arithmetic operations of a call, which profiles compare with the speed of the machine.
#pragma once

#include <cstdint>
#include <span>

#include "ir/op.h"

namespace fermata {

/// Whether an op is a matrix product or convolution, whose kernels are about equally fast for any operand layout.
bool is_product(Op op);
/// For products and convolutions, a multiplication and an addition count as two. For other ops, each element of the
/// largest operand or of the result counts as one.
double operation_count(Op op, std::span<const std::span<const std::int64_t>> operands,
                       std::span<const std::int64_t> result);

}  // namespace fermata
