// The error about a position that is out of range, for all who read or write at positions.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "ir/infer.h"
#include "ir/op.h"

namespace fermata {

/// IndexError FM1204. `operands` are x, index and, if there is one, source; `element` is the number of the position in
/// the index.
[[noreturn]] void throw_position_error(Op op, std::int64_t axis, std::span<const TensorType> operands,
                                       std::string_view position, std::int64_t element, std::source_location where);

}  // namespace fermata
