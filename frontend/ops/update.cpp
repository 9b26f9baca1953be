// update: a tensor with part of its elements replaced, what a write through a view records (frontend/engine/alias.cpp).
#include <array>
#include <vector>

#include "frontend/ops/op_rules.h"

namespace fermata {

// Gradients and batching rules.
namespace vjp {
namespace {

Shape update_strides(const VjpArgs& args) { return Shape(args.attributes().subspan(1)); }
VjpTensor update_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor nothing = full(0, {args.g.dtype(), args.shape(1)}, args.g);
  return update(args.g, nothing, args.attributes()[0], update_strides(args));
}
VjpTensor update_values_vjp(const VjpArgs& args, unsigned) {
  return read_strided(args.g, args.attributes()[0], update_strides(args), args.shape(1));
}

Tensor batched_update(const BatchedCall& call) {
  const std::span<const std::int64_t> given = call.attributes.integers;
  std::vector<std::int64_t> attributes(given.begin(), given.end());
  attributes.insert(attributes.begin() + 1, element_count(call.shape(0)));
  const std::array operands{call.with_batch(0), call.with_batch(1)};
  return vjp::call(Op::update, operands, attributes).tensor();
}

}  // namespace

FERMATA_OP_RULES(update, batched_update, gradient(update_vjp), gradient(update_values_vjp));

}  // namespace vjp

}  // namespace fermata
