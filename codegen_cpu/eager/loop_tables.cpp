// Which instruction set is used: decided once.
#include "codegen_cpu/eager/loop_tables.h"

#include "runtime/environment.h"

namespace fermata::eager {
namespace {

#define FERMATA_EAGER_FILL(isa)                                                                \
  [](LoopTables& t) {                                                                          \
    isa::add_unary(t), isa::add_special(t), isa::add_binary(t), isa::add_comparisons(t);       \
    isa::add_integer_ops(t);                                                                   \
    isa::add_casts(t), isa::add_random(t), isa::add_reductions(t), isa::add_arg_reductions(t); \
    isa::add_integer_sums(t);                                                                  \
  }

constexpr InstructionSet kInstructionSets[] = {
#if defined(__x86_64__) && !defined(FERMATA_EAGER_BASELINE_ONLY)
    {"avx512",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
     },
     FERMATA_EAGER_FILL(avx512)},
    {"avx2",
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); },
     FERMATA_EAGER_FILL(avx2)},
#endif
    {"baseline", [] { return true; }, FERMATA_EAGER_FILL(baseline)}};
#undef FERMATA_EAGER_FILL

/// The first supported set at or below the one that FERMATA_CPU names.
const InstructionSet& chosen_set() {
  const char* wanted = environment_variable("FERMATA_CPU");
  const InstructionSet* first = kInstructionSets;
  for (const InstructionSet& set : kInstructionSets)
    if (wanted != nullptr && set.name == wanted) first = &set;
  while (!first->supported()) ++first;
  return *first;
}

struct Chosen {
  const InstructionSet& set = chosen_set();
  LoopTables tables;
  Chosen() { set.fill(tables); }
};
const Chosen& chosen() {
  static const Chosen value;
  return value;
}

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kInstructionSets; }
const LoopTables& loop_tables() { return chosen().tables; }
std::string_view instruction_set() { return chosen().set.name; }

}  // namespace fermata::eager
