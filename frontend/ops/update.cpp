// update: a tensor with part of its elements replaced, what a write through a view records (frontend/engine/alias.cpp).
#include <array>
#include <vector>

#include "frontend/ops/op_rules.h"

namespace fermata {

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor update_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor nothing = full(0, {args.g.dtype(), args.shape(1)}, args.g);
  const auto [offset, strides] = args.attributes_of<ops::Update>();
  return update(args.g, nothing, offset.value, Shape(strides.value));
}
VjpTensor update_values_vjp(const VjpArgs& args, unsigned) {
  const auto [offset, strides] = args.attributes_of<ops::Update>();
  return read_strided(args.g, offset.value, Shape(strides.value), args.shape(1));
}

Tensor batched_update(const BatchedCall& call) {
  const auto [offset, strides] = attributes_of<ops::Update>(call.attributes);
  Shape all{element_count(call.shape(0))};
  for (const std::int64_t stride : strides.value) all.push_back(stride);
  const std::array operands{call.with_batch(0), call.with_batch(1)};
  return vjp::call<Op::update>({.offset = offset, .strides = {all}}, operands).tensor();
}

}  // namespace

FERMATA_OP_RULES(update, batched_update, gradient(update_vjp), gradient(update_values_vjp));

}  // namespace vjp

}  // namespace fermata
