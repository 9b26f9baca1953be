// See scalar_program.h.
#include "ir/scalar_program.h"

#include <array>
#include <cstring>
#include <type_traits>

namespace fermata {
namespace {

struct PrimInfo {
  std::string_view name;
  unsigned operands;
};
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
  // Most differ in the first word: compiling a kernel looks at some ten thousand.
  constexpr std::size_t kWindow = 256;
  static_assert(std::has_unique_object_representations_v<Instr> && sizeof(Instr) % sizeof(std::uint64_t) == 0);
  const auto first_word = [](const Instr& i) {
    std::uint64_t word;
    std::memcpy(&word, &i, sizeof(word));
    return word;
  };
  const std::uint64_t wanted = first_word(instr);
  for (std::size_t i = instrs_.size() > kWindow ? instrs_.size() - kWindow : 0; i < instrs_.size(); ++i)
    if (first_word(instrs_[i]) == wanted && instrs_[i] == instr) return static_cast<ValueId>(i);
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
