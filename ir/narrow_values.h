// Values of a scalar program that a narrower floating dtype represents, too.
#pragma once

#include "ir/scalar_program.h"

namespace fermata {

/// Whether a value of f32 is known to be one of f16 or bf16, as it was narrow before and has only been chosen from,
/// negated or compared since. Rounding it changes nothing but makes a signaling NaN quiet. Looks at a few instructions.
bool is_value_of(const ScalarProgram& program, ValueId value, DType narrow);

}  // namespace fermata
