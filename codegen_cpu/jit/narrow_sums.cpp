// See narrow_sums.h.
#include "codegen_cpu/jit/narrow_sums.h"

#include <algorithm>

#include "ir/instr_operands.h"

namespace fermata::jit {
namespace {

bool is_sum(const Reduction& reduction) {
  if (reduction.lifted.size() != 1 || reduction.types.size() != 1 || reduction.identity[0] != 0) return false;
  const ScalarProgram& program = reduction.combine.program;
  return program.size() == 3 && program[0].prim == Prim::parameter && program[1].prim == Prim::parameter &&
         program[2].prim == Prim::add && program[2].a != program[2].b;
}

DType integer_of(std::size_t bytes, bool has_sign) {
  switch (bytes) {
    case 1: return has_sign ? DType::i8 : DType::u8;
    case 2: return has_sign ? DType::i16 : DType::u16;
    case 4: return has_sign ? DType::i32 : DType::u32;
    default: return has_sign ? DType::i64 : DType::u64;
  }
}

}  // namespace

NarrowSums::NarrowSums(const Kernel& kernel)
    : sources_(kernel.reductions.size(), kNoValue),
      least_(kernel.reductions.size(), DType::u64),
      only_added_(kernel.program.size(), false) {
  static_assert(kReductionBlock / kReductionLanes <= 128, "a lane of that many bools has eight bits");
  if (!kernel.is_row_kernel()) return;
  for (std::size_t r = 0; r < kernel.reductions.size(); ++r) {
    const Reduction& reduction = kernel.reductions[r];
    if (!is_sum(reduction) || !is_integer(reduction.types[0])) continue;
    const Instr& lifted = kernel.program[reduction.lifted[0]];
    if (lifted.prim != Prim::convert) continue;
    const DType from = kernel.program[lifted.a].type;
    if (from != DType::boolean && !is_integer(from)) continue;
    const std::size_t bytes = from == DType::boolean ? 1 : 2 * byte_size(from);
    if (bytes >= byte_size(reduction.types[0])) continue;
    sources_[r] = lifted.a;
    least_[r] = integer_of(bytes, from != DType::boolean && is_signed(from));
    only_added_[reduction.lifted[0]] = true;
  }
  for (const Instr& instr : kernel.program.instrs()) for_operands(instr, [&](ValueId id) { only_added_[id] = false; });
  for (const Store& store : kernel.stores) only_added_[store.value] = false;
  for (std::size_t r = 0; r < kernel.reductions.size(); ++r)
    if (sources_[r] == kNoValue)
      for (const ValueId id : kernel.reductions[r].lifted) only_added_[id] = false;
}

DType NarrowSums::in_block(std::uint16_t reduction, unsigned lanes, unsigned vector_bits) const {
  const DType least = least_[reduction];
  return integer_of(std::max<std::size_t>(byte_size(least), vector_bits / lanes / 8), is_signed(least));
}

}  // namespace fermata::jit
