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
  return general_call(Op::concat, operands, {.wanted = {}, .integers = {&axis, 1}, .scalars = {}}, where);
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
  const auto axis = static_cast<std::size_t>(args.attributes()[0]);
  Shape starts, steps;
  for (unsigned i = 0; i < args.shape(operand).rank(); ++i) starts.push_back(0), steps.push_back(1);
  for (unsigned k = 0; k < operand; ++k) starts[axis] += args.shape(k)[axis];
  return slice(args.g, starts, steps, args.shape(operand));
}

Tensor batched_concat(const BatchedCall& call) {
  std::vector<Tensor> parts;
  for (std::size_t k = 0; k < call.operands.size(); ++k) parts.push_back(call.with_batch(k));
  const std::array axis{call.attributes.integers[0] + 1};
  return vjp::call(Op::concat, parts, axis).tensor();
}

}  // namespace

FERMATA_OP_RULES(concat, batched_concat, gradient(concat_vjp));

}  // namespace vjp

}  // namespace fermata
