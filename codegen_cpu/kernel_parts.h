// Kernels of several stages as one kernel for each stage, and one for what is written at each point.
//
// A kernel over columns is shared by ranges of columns, and one over rows by rows: where there are few of them, as in
// the statistics of the features of many samples, or of one long vector, threads have nothing to share. One stage alone
// can be shared by blocks, whose states are merged in order (Executable::partial), and a map by its rows or columns.
// Later kernels read what earlier ones reduced. Bits are the same.
#pragma once

#include <memory>
#include <vector>

#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// All kernels have the accesses of the one that they come from, then one for each value that the map reads
/// (point_results()), and those that reduce one for each component of each reduction: an element for each column, or
/// one. For launches of one row. Empty where one stage does it all.
std::vector<Kernel> kernel_parts(const Kernel& kernel);

/// Whether a launch is of a single row, with few columns for the threads that there are, and enough blocks.
bool is_shared_by_few(const Kernel& kernel, const KernelLaunch& launch);

/// Runs the parts by code for them (Executable::in_parts), one after the other in a launch.
std::shared_ptr<const Executable> parted_executable(const Kernel& kernel, std::vector<Kernel> parts,
                                                    std::vector<std::shared_ptr<const Executable>> code);

}  // namespace fermata
