// How the drivers of this folder register their `call` kernels.
#pragma once

#include "codegen_cpu/eager/loop_tables.h"
#include "dispatch/kernel_files.h"

namespace fermata::eager {

/// With the inner loops of a pointwise op.
void add_eager_kernel(Op op, CallKernel call, std::source_location where = std::source_location::current());
/// Of every op of a family.
void add_eager_kernels(Family family, CallKernel call, std::source_location where = std::source_location::current());

}  // namespace fermata::eager
