// See calls.h.
#include "frontend/ops/calls.h"

#include <optional>

#include "fermata/ops.h"
#include "frontend/engine/no_memory.h"

namespace fermata {

void require_defined(Op op, const Operand& operand) {
  if (operand.is_tensor()) require_defined(name(op), operand.tensor(), operand.where());
}

void require_defined(std::string_view function, const Tensor& x, Location where) {
  if (!x.defined()) throw_undefined(function, where);
}

Tensor general_call(Op op, std::span<const Tensor> tensors, const Attributes& attributes, Location where) try {
  for (const Tensor& t : tensors)
    if (!t.defined()) [[unlikely]]
      require_defined(name(op), t, where);
  return Dispatcher<GeneralCall>::call(operator_entry(op), where, tensors, attributes);
} catch (const std::bad_alloc&) { throw_no_memory(name(op), where); }

std::vector<Tensor> promoted(Op op, std::span<const Tensor> tensors, Location where) {
  std::vector<Tensor> result(tensors.begin(), tensors.end());
  for (const Tensor& t : tensors) require_defined(op, {t, where});
  if (tensors.empty()) return result;
  std::optional<DType> common = tensors[0].dtype();
  for (const Tensor& t : tensors)
    if (common) common = promote(*common, t.dtype());
  if (!common) return result;  // inference names the two that do not go together
  for (Tensor& t : result) t = astype(t, *common, where);
  return result;
}

std::vector<ErrorOperand> describe(const Tensor& x) {
  return {{"x", x.defined() ? to_string(x.dtype(), x.shape()) : "undefined", ""}};
}

std::vector<ErrorOperand> describe(const Tensor& lhs, const Tensor& rhs) {
  return {{"lhs", to_string(lhs.dtype(), lhs.shape()), ""}, {"rhs", to_string(rhs.dtype(), rhs.shape()), ""}};
}

}  // namespace fermata
