// See short_form.h.
#include "ir/short_form.h"

#include <algorithm>
#include <vector>

namespace fermata {

namespace {
bool is_general(const Instr& instr) { return instr.prim == Prim::select && instr.bits == kGeneral; }
}  // namespace

Kernel short_form(const Kernel& kernel) {
  if (std::ranges::none_of(kernel.program.instrs(), is_general)) return kernel;
  Kernel result = kernel;
  result.program = {};
  std::vector<ValueId> moved;
  const auto move = [&](ValueId& id) {
    if (id != kNoValue) id = moved[id];
  };
  for (Instr instr : kernel.program.instrs()) {
    move(instr.a), move(instr.b), move(instr.c);
    const ValueId same = result.program.add(instr);  // not used any more, but values keep their numbers
    moved.push_back(is_general(instr) ? instr.c : same);
  }
  for (Store& store : result.stores) move(store.value);
  for (Reduction& reduction : result.reductions)
    for (ValueId& id : reduction.lifted) move(id);
  return result;
}

std::size_t usual_size(const Formula& formula) {
  const ScalarProgram& program = formula.program;
  if (std::ranges::none_of(program.instrs(), is_general)) return program.size();
  std::vector<bool> is_used(program.size(), false);
  for (const ValueId id : formula.results) is_used[id] = true;
  for (ValueId id = static_cast<ValueId>(program.size()); id-- > 0;) {
    const Instr& instr = program[id];
    if (!is_used[id]) continue;
    for (const ValueId operand : {instr.a, instr.b, is_general(instr) ? kNoValue : instr.c})
      if (operand != kNoValue) is_used[operand] = true;
  }
  return static_cast<std::size_t>(std::ranges::count(is_used, true));
}

}  // namespace fermata
