// See edges.h.
#include "codegen_cpu/jit/edges.h"

#include "ir/instr_operands.h"

namespace fermata::jit {

std::vector<std::uint16_t> axes_of_values(const Kernel& kernel) {
  std::vector<std::uint16_t> axes(kernel.program.size());
  const auto all = static_cast<std::uint16_t>((1u << kernel.rank) - 1u);
  for (ValueId i = 0; i < kernel.program.size(); ++i) {
    const Instr& instr = kernel.program[i];
    if (has_access(instr.prim)) axes[i] = kernel.accesses[instr.index].axes;
    if (instr.prim == Prim::reduced) axes[i] = static_cast<std::uint16_t>(all & ~kernel.reduced);
    for_operands(instr, [&](ValueId id) { axes[i] = static_cast<std::uint16_t>(axes[i] | axes[id]); });
  }
  return axes;
}

Edges::Edges(const Kernel& kernel, bool joins)
    : decided_(kernel.program.size()),
      only_compared_(kernel.program.size()),
      has_place_(kernel.program.size()),
      only_chosen_(kernel.program.size()) {
  const ScalarProgram& program = kernel.program;
  const std::vector<std::uint16_t> axes = axes_of_values(kernel);
  const auto is_uniform = [&](ValueId id) { return (axes[id] >> (kernel.rank - 1u) & 1u) == 0; };
  const auto is_position = [&](ValueId id) {
    if (program[id].prim != Prim::offset) return false;
    const Access& access = kernel.accesses[program[id].index];
    return access.address_only && access.unit_stride;
  };
  for (ValueId i = 0; i < program.size(); ++i) {
    const Instr& instr = program[i];
    if (instr.prim == Prim::guarded_input) {
      decided_[i] = is_position(instr.a) && is_uniform(instr.b) && is_uniform(instr.c);
      has_place_[i] = decided_[i] && kernel.accesses[instr.index].unit_stride;
    } else if (instr.prim == Prim::lt || instr.prim == Prim::le) {
      decided_[i] = (is_position(instr.a) && is_uniform(instr.b)) || (is_uniform(instr.a) && is_position(instr.b));
    } else if (instr.prim == Prim::select) {
      has_place_[i] = joins && decided_[instr.a] && has_place_[instr.b] && has_place_[instr.c];
    } else if (is_position(i)) {
      only_compared_[i] = true;
    }
    only_chosen_[i] = joins && has_place_[i];
    for_operands(instr, [&](ValueId id) {
      if (!decided_[i]) only_compared_[id] = false;
      if (!(instr.prim == Prim::select && has_place_[i])) only_chosen_[id] = false;
    });
  }
  const auto read = [&](ValueId id) { only_compared_[id] = only_chosen_[id] = false; };
  for (const Store& store : kernel.stores) read(store.value);
  for (const Reduction& reduction : kernel.reductions)
    for (const ValueId id : reduction.lifted) read(id);
}

}  // namespace fermata::jit
