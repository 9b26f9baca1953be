// Map kernels of short rows, whose rows are joined.
//
// Operands and results that lie in order make one long row of many short ones; an operand that has one element for each
// row, or the same row each time, is repeated in a buffer to fit, and rows that lie elsewhere (of a part, or exchanged)
// are copied there. Vectors are full then, and several are computed side
// by side.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// Longer rows fill their vectors well enough.
inline constexpr std::int64_t kLongestJoinedRow = 32;
/// Of a program of few primitives, filling the buffers takes longer than a vector that is half full. Rows of bytes are
/// joined whatever is computed.
inline constexpr std::int64_t kLongestJoinedRowOfFew = 7;

/// The kernel over one axis, of the elements of all rows; nullopt where rows of a kernel are never joined.
std::optional<Kernel> joined_kernel(const Kernel& kernel);

/// Whether the rows of a launch lie so that they can be joined.
bool can_join_rows(const Kernel& kernel, const KernelLaunch& launch);
/// Whether they are short enough, too, for that to pay.
bool has_rows_to_join(const Kernel& kernel, const KernelLaunch& launch);

/// Launches of `kernel`, whose rows can be joined, by way of code for joined_kernel().
std::shared_ptr<const Executable> joined_executable(const Kernel& kernel, std::shared_ptr<const Executable> joined);

}  // namespace fermata
