// Binary ops over numbers; comparisons and integer ops have files of their own, so that no file takes long to compile.
#include "codegen_cpu/eager/pointwise_loop.h"

namespace fermata::eager::FERMATA_ISA {

struct Arithmetic {
  static constexpr bool of(DTypeRule rule) {
    return rule == DTypeRule::numeric || rule == DTypeRule::floating || rule == DTypeRule::arithmetic ||
           rule == DTypeRule::analytic;
  }
};

void add_binary(LoopTables& tables) {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) put_loops<name##_row, 2>(tables, Op::name, Arithmetic{});
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
