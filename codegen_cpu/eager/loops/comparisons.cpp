// Comparisons and choices.
#include "codegen_cpu/eager/pointwise_loop.h"

namespace fermata::eager::FERMATA_ISA {

struct Comparison {
  static constexpr bool of(DTypeRule rule) {
    return rule == DTypeRule::compare || rule == DTypeRule::equality || rule == DTypeRule::choose;
  }
};

void add_comparisons(LoopTables& tables) {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) put_loops<name##_row, 2>(tables, Op::name, Comparison{});
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  put_loops<name##_row, 3>(tables, Op::name, Comparison{});
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
