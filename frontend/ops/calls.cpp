// See calls.h.
#include "frontend/ops/calls.h"

namespace fermata {

void require_defined(Op op, const Operand& operand) {
  if (operand.is_tensor()) require_defined(name(op), operand.tensor(), operand.where());
}

void require_defined(std::string_view function, const Tensor& x, Location where) {
  if (!x.defined()) throw_undefined(function, where);
}

Tensor general_call(Op op, std::span<const Tensor> tensors, const Attributes& attributes, Location where) {
  for (const Tensor& t : tensors)
    if (!t.defined()) [[unlikely]]
      require_defined(name(op), t, where);
  return Dispatcher<GeneralCall>::call(operator_entry(op), where, tensors, attributes);
}

std::vector<ErrorOperand> describe(const Tensor& x) {
  return {{"x", x.defined() ? to_string(x.dtype(), x.shape()) : "undefined", ""}};
}

std::vector<ErrorOperand> describe(const Tensor& lhs, const Tensor& rhs) {
  return {{"lhs", to_string(lhs.dtype(), lhs.shape()), ""}, {"rhs", to_string(rhs.dtype(), rhs.shape()), ""}};
}

}  // namespace fermata
