// Column kernels of several stages as one kernel for each stage, and one for what is written at each point.
//
// A kernel over columns is shared by ranges of columns: where there are few of them, as in the statistics of the
// features of many samples, threads have nothing to share. One stage alone can be shared by blocks of rows, whose
// states are merged in order (Executable::partial), and a map by its rows. Later kernels read what earlier ones
// reduced, and compute again what depends on it. Bits are the same.
#pragma once

#include <memory>
#include <vector>

#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// All kernels have the accesses of the one that they come from, and then one for each component of each reduction,
/// with an element for each column. Empty where one stage does it all.
std::vector<Kernel> column_parts(const Kernel& kernel);

/// Whether a launch of a single row has few columns for the threads that there are, and enough blocks of rows.
bool has_few_columns(const Kernel& kernel, const KernelLaunch& launch);

/// Runs the parts by code for them (Executable::in_parts), one after the other in a launch.
std::shared_ptr<const Executable> parted_executable(const Kernel& kernel, std::vector<Kernel> parts,
                                                    std::vector<std::shared_ptr<const Executable>> code);

}  // namespace fermata
