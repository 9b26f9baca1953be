// Reductions whose result is a value.
#include "codegen_cpu/eager/reduce_loop.h"

namespace fermata::eager::FERMATA_ISA {

void add_reductions(LoopTables& tables) {
#define FERMATA_REDUCE(name, rule, vjp, doc) \
  put_reduction<name##_monoid, DTypeRule::rule, DTypeRule::rule != DTypeRule::index>(tables, Op::name);
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
