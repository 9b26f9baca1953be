// Operands of kernels that lie across memory, brought into order before a launch.
//
// Where a transposed operand is read along rows of a kernel, each element is in another cache line, which is read again
// for each of its elements. A copy turns squares of such an operand in registers (irregular/strided_copy.h), after
// which code for operands in order reads it; the bits are the same.
#pragma once

#include <cstdint>

#include "ir/kernel.h"
#include "runtime/function_ref.h"

namespace fermata {

/// A bit for each access, of the first 64.
using AccessSet = std::uint64_t;

/// Accesses of a kernel that may lie across memory, as far as is known without strides.
AccessSet accesses_to_arrange(const Kernel& kernel);
/// Those of them that do at a launch, and are large enough for a copy; or that lie apart, and are read again and again.
/// Operands that kernels read by tiles (jit/map_kernel.cpp) are not among them.
AccessSet accesses_across(const Kernel& kernel, AccessSet candidates, const KernelLaunch& launch);
/// Those of them that lie in order at a launch.
AccessSet accesses_in_order(const Kernel& kernel, AccessSet candidates, const KernelLaunch& launch);

/// Those of them that have one element for each row at a launch: a stride of zero.
AccessSet accesses_stretched(const Kernel& kernel, AccessSet candidates, const KernelLaunch& launch);

/// The kernel for launches at which some accesses lie in order, and others have one element for each row.
Kernel arranged_kernel(const Kernel& kernel, AccessSet in_order, AccessSet stretched);
/// Runs a launch with copies of these operands; with none if there is no memory for them.
void run_arranged(const Kernel& kernel, AccessSet arranged, const KernelLaunch& launch,
                  FunctionRef<void(const KernelLaunch&)> run);

}  // namespace fermata
