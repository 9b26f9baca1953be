// Whether a value of a scalar program is what a formula computes: kernels are recognized by what they compute, not by
// what it was called.
#pragma once

#include <optional>
#include <vector>

#include "ir/scalar_program.h"

namespace fermata::gpu {

/// The values that stand for the formula's parameters, kNoValue where it does not use one; nothing where `value` is
/// something else than the formula's first result.
std::optional<std::vector<ValueId>> match(const ScalarProgram& program, ValueId value, const Formula& formula);

/// Whether two formulas are the same, instruction by instruction.
bool same_formula(const Formula& a, const Formula& b);

}  // namespace fermata::gpu
