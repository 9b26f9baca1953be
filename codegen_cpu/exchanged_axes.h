// Map kernels with operands that lie in order along an outer axis.
//
// Kernels read such operands by tiles of neighboring rows where they lie in order along the axis before the vector axis
// (jit/map_kernel.cpp). The order of the other axes is free: the one that an operand lies along changes places with the
// one before the vector axis.
#pragma once

#include <memory>

#include "ir/kernel.h"
#include "runtime/executable.h"
#include "runtime/function_ref.h"

namespace fermata {

/// Whether a kernel has operands for which that may pay.
bool may_exchange_axes(const Kernel& kernel);
/// Launches `code` for a kernel of which that is true, with axes in the order that is best for the strides.
void launch_exchanged(const Kernel& kernel, const KernelLaunch& launch, FunctionRef<void(const KernelLaunch&)> code);
/// Launches of `kernel` by way of `code` for it.
std::shared_ptr<const Executable> exchanging_executable(const Kernel& kernel, std::shared_ptr<const Executable> code);

}  // namespace fermata
