// See scalar_program.h.
#include "ir/scalar_program.h"

#include <algorithm>
#include <array>

namespace fermata {
namespace {

struct PrimInfo { std::string_view name; unsigned operands; };
constexpr auto kPrims = std::to_array<PrimInfo>({
#define FERMATA_PRIM(name, operands, text) {#name, operands},
#include "ir/prims.def"
});

}  // namespace

std::string_view name(Prim p) { return kPrims[static_cast<std::size_t>(p)].name; }
unsigned operand_count(Prim p) { return kPrims[static_cast<std::size_t>(p)].operands; }

thread_local Recorder* Recorder::current_ = nullptr;

ValueId ScalarProgram::add(const Instr& instr) {
  // A window, not a map: programs are short and repeats are near (the operands of one formula, or equal loads).
  constexpr std::size_t kWindow = 256;
  const std::size_t first = instrs_.size() > kWindow ? instrs_.size() - kWindow : 0;
  const auto same = std::find(instrs_.begin() + static_cast<std::ptrdiff_t>(first), instrs_.end(), instr);
  if (same != instrs_.end()) return static_cast<ValueId>(same - instrs_.begin());
  instrs_.push_back(instr);
  return static_cast<ValueId>(instrs_.size() - 1);
}

std::vector<ValueId> ScalarProgram::inline_program(const ScalarProgram& other, const std::vector<ValueId>& operands,
                                                   const std::vector<ValueId>& results) {
  std::vector<ValueId> moved(other.size());
  const auto at = [&](ValueId id) { return id == kNoValue ? kNoValue : moved[id]; };
  for (ValueId i = 0; i < other.size(); ++i) {
    Instr instr = other[i];
    if (instr.prim == Prim::parameter) {
      moved[i] = operands[instr.index];
      continue;
    }
    instr.a = at(instr.a), instr.b = at(instr.b), instr.c = at(instr.c);
    moved[i] = add(instr);
  }
  std::vector<ValueId> out;
  for (const ValueId r : results) out.push_back(moved[r]);
  return out;
}

}  // namespace fermata
