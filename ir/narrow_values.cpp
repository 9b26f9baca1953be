// See narrow_values.h.
#include "ir/narrow_values.h"

#include <array>
#include <cstddef>

#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

/// Whether a constant of f32 goes through the narrow dtype unchanged.
bool is_constant_of(std::uint64_t bits, DType narrow) {
  return convert_slot(narrow, DType::f32, convert_slot(DType::f32, narrow, bits)) == bits;
}

/// bf16 has 8 digits, f16 more.
bool is_converted(DType from, DType narrow) {
  return from == narrow || from == DType::boolean || from == DType::u8 || from == DType::i8;
}

}  // namespace

bool is_value_of(const ScalarProgram& program, ValueId value, DType narrow) {
  constexpr std::size_t kMost = 24;
  std::array<ValueId, kMost + 2> open{value};
  std::size_t count = 1;
  for (std::size_t seen = 0; count > 0; ++seen) {
    if (seen == kMost || count > kMost) return false;
    const Instr& instr = program[open[--count]];
    if (instr.type != DType::f32) return false;
    switch (instr.prim) {
      case Prim::constant:
        if (!is_constant_of(instr.bits, narrow)) return false;
        break;
      case Prim::convert:
        if (!is_converted(program[instr.a].type, narrow)) return false;
        break;
      case Prim::min:
      case Prim::max: open[count++] = instr.a, open[count++] = instr.b; break;
      case Prim::neg:
      case Prim::abs: open[count++] = instr.a; break;
      case Prim::select: open[count++] = instr.b, open[count++] = instr.c; break;
      default: return false;
    }
  }
  return true;
}

}  // namespace fermata
