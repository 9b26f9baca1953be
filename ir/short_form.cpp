// See short_form.h.
#include "ir/short_form.h"

#include <algorithm>
#include <vector>

namespace fermata {

Kernel short_form(const Kernel& kernel) {
  const auto is_general = [](const Instr& instr) { return instr.prim == Prim::select && instr.bits == kGeneral; };
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

}  // namespace fermata
