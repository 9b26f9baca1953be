// The operands of an instruction of a scalar program, one after the other.
#pragma once

#include "ir/scalar_program.h"

namespace fermata {

template <class F> void for_operands(const Instr& instr, F&& f) {
  for (const ValueId id : {instr.a, instr.b, instr.c})
    if (id != kNoValue) f(id);
}

}  // namespace fermata
