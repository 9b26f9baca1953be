// Column kernels with large results, in two steps: what they reduce, and then what they write.
//
// A column kernel goes down a few columns at a time, so that what a later stage reads again is in the second-level
// cache. What it writes then lies far from what it has written before: no processor fetches such lines ahead of their
// stores, nor can they bypass the caches. Where results are large, the reductions run alone, and what is written at
// each point is computed by a map kernel from theirs, row after row. Bits are the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// Both kernels have the accesses of the one that they come from, and then one for each value that the first one hands
/// on to the second one, with an element for each column.
struct StagedKernels {
  Kernel reductions, results;
};

/// Whether a store runs at each point of the reduced axes.
inline bool is_at_each_point(const Kernel& kernel, const Store& store) {
  return (kernel.accesses[store.access].axes & kernel.reduced) != 0;
}

/// The map of what a kernel writes at each point. Access kernel.accesses.size() + i of it is `handed_on[i]`, a value of
/// the kernel that depends on reductions only: an element for each column, or one where rows are reduced.
struct PointResults {
  Kernel map;
  std::vector<ValueId> handed_on;
};
PointResults point_results(const Kernel& kernel);

/// Nullopt where nothing is reduced down columns, or nothing is written at each point.
std::optional<StagedKernels> staged_kernels(const Kernel& kernel);

/// Whether columns are so tall, and results so large, that this pays; or lines of columns so far apart (4096 bytes,
/// say) that a cache holds few of them, and results are soon computed.
bool has_tall_columns(const Kernel& kernel, const StagedKernels& kernels, const KernelLaunch& launch);

/// Launches of `kernel` by way of code for both.
std::shared_ptr<const Executable> staged_executable(const Kernel& kernel, const StagedKernels& kernels,
                                                    std::shared_ptr<const Executable> reductions,
                                                    std::shared_ptr<const Executable> results);

}  // namespace fermata
