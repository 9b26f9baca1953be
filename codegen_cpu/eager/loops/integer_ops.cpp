// Bits, shifts and logic.
#include "codegen_cpu/eager/pointwise_loop.h"

namespace fermata::eager::FERMATA_ISA {

struct Bits {
  static constexpr bool of(DTypeRule rule) {
    return rule == DTypeRule::bits || rule == DTypeRule::integers || rule == DTypeRule::words ||
           rule == DTypeRule::truth;
  }
};

void add_integer_ops(LoopTables& tables) {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) put_loops<name##_row, 2>(tables, Op::name, Bits{});
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
