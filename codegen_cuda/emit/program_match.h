// Matches values of a scalar program against formulas: kernels are recognized by what they compute, not by op names.
#pragma once

#include <optional>
#include <vector>

#include "ir/scalar_program.h"

namespace fermata::gpu {

/// Returns the values bound to the formula's parameters (kNoValue for unused ones), or nullopt if `value` does not
/// match the formula's first result.
std::optional<std::vector<ValueId>> match(const ScalarProgram& program, ValueId value, const Formula& formula);

/// Whether two formulas are equal, instruction by instruction.
bool same_formula(const Formula& a, const Formula& b);

}  // namespace fermata::gpu
