// What kernels that read at positions say when one is out of range.
#pragma once

#include <memory>

#include "passes/build_kernel.h"
#include "passes/program.h"
#include "runtime/steps/kernel_step.h"

namespace fermata {

/// Null if the kernel reads at no positions.
std::shared_ptr<const PositionChecks> position_checks(const Graph& graph, const BuiltKernel& built);

}  // namespace fermata
