// See rare_values.h.
#include "codegen_cpu/jit/rare_values.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/instr_operands.h"

namespace fermata::jit {
namespace {

/// Fewer take no longer than the branch.
constexpr std::size_t kFewest = 12;

}  // namespace

RareValues::RareValues(const Kernel& kernel, const SpilledValues& kept)
    : condition_of_(kernel.program.size(), kNoValue), users_(kernel.program.size()) {
  const ScalarProgram& program = kernel.program;
  const auto is_rare = [](const Instr& instr) { return instr.prim == Prim::select && instr.bits != 0; };
  if (std::ranges::none_of(program.instrs(), is_rare)) return;
  // The condition of all uses so far: kNoValue if they have none in common. Users come after what they use.
  std::vector<std::optional<ValueId>> common(program.size());
  const auto use = [&](ValueId id, ValueId condition) {
    common[id] = common[id].value_or(condition) == condition ? condition : kNoValue;
  };
  for (const Store& store : kernel.stores) use(store.value, kNoValue);
  for (const Reduction& reduction : kernel.reductions)
    for (const ValueId id : reduction.lifted) use(id, kNoValue);
  for (const SpilledValues::Stage& stage : kept.stages)
    for (const KeptValue& value : stage.written) use(value.value, kNoValue);
  for (ValueId id = static_cast<ValueId>(program.size()); id-- > 0;) {
    const Instr& instr = program[id];
    if (has_access(instr.prim) || instr.prim == Prim::position || instr.prim == Prim::reduced) use(id, kNoValue);
    const ValueId condition = common[id].value_or(kNoValue);
    if (is_rare(instr)) {
      use(instr.a, condition), use(instr.b, condition), use(instr.c, condition == kNoValue ? instr.a : condition);
      continue;
    }
    for_operands(instr, [&](ValueId operand) { use(operand, condition); });
  }
  std::map<ValueId, std::size_t> count;
  for (const std::optional<ValueId>& condition : common) ++count[condition.value_or(kNoValue)];
  for (ValueId id = 0; id < program.size(); ++id)
    if (const ValueId condition = common[id].value_or(kNoValue); condition != kNoValue && count[condition] >= kFewest)
      condition_of_[id] = condition;
  for (ValueId id = 0; id < program.size(); ++id)
    for_operands(program[id], [&](ValueId operand) {
      if (contains(operand)) users_[operand].push_back(id);
    });
}

}  // namespace fermata::jit
