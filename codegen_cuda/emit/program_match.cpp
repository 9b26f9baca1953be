// See program_match.h. Operands precede their uses and equal instructions are shared, so one pass over the formula
// settles every pair.
#include "codegen_cuda/emit/program_match.h"

#include <array>
#include <utility>

namespace fermata::gpu {

std::optional<std::vector<ValueId>> match(const ScalarProgram& program, ValueId value, const Formula& formula) {
  std::vector<std::pair<ValueId, ValueId>> open{{value, formula.results[0]}};
  std::vector<ValueId> settled(formula.program.size(), kNoValue), parameters(formula.parameters.size(), kNoValue);
  while (!open.empty()) {
    const auto [given_id, wanted_id] = open.back();
    open.pop_back();
    if (settled[wanted_id] == given_id) continue;
    if (settled[wanted_id] != kNoValue) return {};
    settled[wanted_id] = given_id;
    const Instr &given = program[given_id], &wanted = formula.program[wanted_id];
    if (given.type != wanted.type) return {};
    if (wanted.prim == Prim::parameter) {
      parameters[wanted.index] = given_id;
      continue;
    }
    if (given.prim != wanted.prim || given.index != wanted.index || given.bits != wanted.bits) return {};
    const std::array operands{std::pair{given.a, wanted.a}, std::pair{given.b, wanted.b}, std::pair{given.c, wanted.c}};
    for (const auto& [x, y] : operands) {
      if ((x == kNoValue) != (y == kNoValue)) return {};
      if (x != kNoValue) open.emplace_back(x, y);
    }
  }
  return parameters;
}

bool same_formula(const Formula& a, const Formula& b) { return a.program == b.program && a.results == b.results; }

}  // namespace fermata::gpu
