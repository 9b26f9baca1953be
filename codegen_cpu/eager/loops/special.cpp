// Special functions: unary ops with long formulas.
#include "codegen_cpu/eager/pointwise_loop.h"

namespace fermata::eager::FERMATA_ISA {

struct AnyRule {
  static constexpr bool of(DTypeRule) { return true; }
};

void add_special(LoopTables& tables) {
#define FERMATA_SPECIAL_UNARY(name, rule, formula, vjp, doc) put_loops<name##_row, 1>(tables, Op::name, AnyRule{});
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
