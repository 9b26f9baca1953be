// concat and stack. See fermata/ops.h.
#include <array>
#include <vector>

#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

Tensor concat(std::span<const Tensor> tensors, std::int64_t axis, Location where) {
  const std::vector<Tensor> operands = promoted(Op::concat, tensors, where);
  if (!tensors.empty()) axis = normalize_axis("concat", axis, type_of(tensors[0]), where);
  return general_call<Op::concat>({.axis = {axis}}, operands, where);
}
Tensor concat(std::initializer_list<Tensor> tensors, std::int64_t axis, Location where) {
  return concat(std::span(std::data(tensors), tensors.size()), axis, where);
}

Tensor stack(std::span<const Tensor> tensors, std::int64_t axis, Location where) {
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    require_defined(Op::concat, {t, where});
    if (t.shape() != tensors[0].shape())
      throw ShapeError(1016, format_error(1016, "ShapeError", "stack: shapes differ", describe(tensors[0], t), where));
    parts.push_back(expand_dims(t, axis, where));
  }
  return concat(parts, axis, where);
}
Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t axis, Location where) {
  return stack(std::span(std::data(tensors), tensors.size()), axis, where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor concat_vjp(const VjpArgs& args, unsigned operand) {
  const auto axis = static_cast<std::size_t>(args.attributes_of<ops::Concat>().axis.value);
  Shape starts, steps;
  for (unsigned i = 0; i < args.shape(operand).rank(); ++i) starts.push_back(0), steps.push_back(1);
  for (unsigned k = 0; k < operand; ++k) starts[axis] += args.shape(k)[axis];
  return slice(args.g, starts, steps, args.shape(operand));
}

}  // namespace

FERMATA_OP_RULES(concat, batched_in_front, gradient(concat_vjp));

}  // namespace vjp

}  // namespace fermata
