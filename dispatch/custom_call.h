// The variants that operators from outside have in backend cells.
#pragma once

#include <vector>

#include "dispatch/kernel_table.h"

namespace fermata {

/// Of a pointwise operator: its formula, which fuses, and the formula alone, called. Of any other: its kernel, called.
std::vector<KernelVariant> external_variants(const OperatorEntry& entry, BackendKey backend,
                                             std::source_location where);

/// Runs one pointwise op, cast or copy as a kernel of its own.
CallKernel one_op_call(BackendKey backend);

}  // namespace fermata
