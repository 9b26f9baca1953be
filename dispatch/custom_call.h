// The variants of custom operators in backend cells.
#pragma once

#include <vector>

#include "dispatch/kernel_table.h"

namespace fermata {

/// For a pointwise operator: its formula, which fuses, and a call of the formula alone. For any other: a call of its
/// kernel.
std::vector<KernelVariant> external_variants(const OperatorEntry& entry, BackendKey backend,
                                             std::source_location where);

/// Runs one pointwise op, cast or copy as a single-op kernel.
CallKernel one_op_call(BackendKey backend);

}  // namespace fermata
