// Rules of the ops of ir/ops/control.def. Control flow is differentiated and batched by its functions
// (frontend/transforms/control_flow).
#include "frontend/ops/op_rules.h"

namespace fermata {

// Gradients and batching rules.
namespace vjp {
namespace {

/// The second operand is only waited for.
Tensor batched_after(const BatchedCall& call) {
  const Tensor operands[] = {call.with_batch(0), call.operands[1].value};
  return vjp::call<Op::after>({}, operands).tensor();
}

}  // namespace

FERMATA_OP_RULES(cond, kLoop, kNoGradient);
FERMATA_OP_RULES(while_loop, kLoop, kNoGradient);
FERMATA_OP_RULES(scan, kLoop, kNoGradient);
FERMATA_OP_RULES(unpack, kLoop, kNoGradient);
FERMATA_OP_RULES(after, batched_after, kSameGradient, kZeroGradient);

}  // namespace vjp

}  // namespace fermata
