// See eager.h.
#include "codegen_cpu/eager/eager.h"

#include "codegen_cpu/eager/drivers.h"

namespace fermata::eager {

CallKernel eager_kernel(Op op) {
  switch (family(op)) {
    case Family::unary:
    case Family::binary:
    case Family::ternary: return &run_pointwise;
    case Family::reduce: return &run_reduction;
    case Family::random: return &run_random;
    default: break;
  }
  switch (op) {
    case Op::cast: return &run_cast;
    case Op::copy: return &run_copy;
    case Op::full: return &run_full;
    case Op::iota: return &run_iota;
    default: return nullptr;
  }
}

InnerLoop eager_inner_loop(Op op, DType operand) {
  return loop_tables().pointwise[static_cast<std::size_t>(op)][static_cast<std::size_t>(operand)];
}

}  // namespace fermata::eager
