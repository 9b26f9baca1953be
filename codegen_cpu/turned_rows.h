// Kernels of short rows, with lanes across rows.
//
// Along a row of three elements a vector is nearly empty, and merging its lanes costs what a row of 64 does. Such a
// kernel is turned: its axes become those along a row and then the rows, tiles of rows are brought into buffers in that
// order unless they lie so, and the kernel runs on them: a map kernel as one with long rows, a row kernel as a column
// kernel that merges the elements of a row, and then its blocks, by the trees of a row kernel. Bits are the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ir/kernel.h"
#include "runtime/backend_capabilities.h"
#include "runtime/executable.h"

namespace fermata {

/// Rows that are longer fill the vectors of a row kernel well enough; a map kernel's do where they are one vector.
/// Where fewer lie evenly along any axis, bringing them into buffers takes what is saved.
inline constexpr std::int64_t kLongestTurnedRow = kLongestShortRow, kFewestTurnedRows = 16;
/// The same where a row is reduced several times, one after the other, and merges its lanes each time.
inline constexpr std::int64_t kLongestTurnedRowOfStages = 56;
/// Rows of a map kernel that have as many bytes in the narrowest dtype fill at least one vector of it.
inline constexpr std::int64_t kFilledBytes = 32;
/// Blocks of a row that reduces several axes, whose states wait until all are there.
inline constexpr std::int64_t kMostTurnedBlocks = kReductionLanes;

/// The kernel over [axes along a row..., rows], where a kernel can be turned.
std::optional<Kernel> turned_kernel(const Kernel& kernel);

/// The longest row of a kernel with which it is turned.
std::int64_t longest_turned_row(const Kernel& kernel);

/// Whether the rows of a launch are short enough, and enough of them along one axis, to be turned.
bool has_short_rows(const Kernel& kernel, const KernelLaunch& launch, std::int64_t longest);

/// Launches of `kernel` by way of code for turned_kernel().
std::shared_ptr<const Executable> turned_executable(const Kernel& kernel, std::shared_ptr<const Executable> turned);

}  // namespace fermata
