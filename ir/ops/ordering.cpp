// See ordering.h.
#include "ir/ops/ordering.h"

#include <fmt/format.h>

namespace fermata::ops {
namespace {

unsigned ordered_axis(const InferCall& call, std::int64_t axis) {
  if (!kRealOrBoolean.has(call.operand(0).dtype)) call.refuse_dtype(0);
  return call.axis(axis, call.operand(0));
}

}  // namespace

/// A scan keeps the shape. Its operand has been cast to what the rule accumulates in.
TensorType Scan::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  call.axis(axis.value, x);
  const auto accepted = apply_rule(info(call.op).rule, x.dtype);
  if (!accepted || accepted->operand != x.dtype) call.refuse_dtype(0);
  return x;
}

TensorType Sort::infer(const InferCall& call) const {
  ordered_axis(call, axis.value);
  return call.operand(0);
}

TensorType Argsort::infer(const InferCall& call) const {
  ordered_axis(call, axis.value);
  return call.result(DType::i64, call.operand(0).shape);
}

TensorType TopKIndices::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const unsigned along = ordered_axis(call, axis.value);
  if (k.value < 0 || k.value > x.shape[along])
    call.fail<ValueError>(1312, "ValueError", fmt::format("k is {}, not 0 to {}", k.value, x.shape[along]),
                          {fmt::format("axis {} is {}", along, x.shape[along])});
  Shape shape = x.shape;
  shape[along] = k.value;
  return {DType::i64, shape};
}

TensorType Searchsorted::infer(const InferCall& call) const {
  const TensorType& sorted = call.operand(0);
  call.require_same_dtype(0, 1);
  if (!kRealOrBoolean.has(sorted.dtype)) call.refuse_dtype(0);
  if (sorted.shape.rank() != 1)
    call.fail<ShapeError>(1024, "ShapeError", "the first operand must be a sorted vector",
                          {fmt::format("{} axes", sorted.shape.rank())});
  return call.result(DType::i64, call.operand(1).shape);
}

TensorType Bincount::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  if (!kIntegers.has(x.dtype)) call.refuse_dtype(0);
  const unsigned last = call.axis(static_cast<std::int64_t>(x.shape.rank()) - 1, x);
  Shape shape = x.shape;
  shape[last] = length.value;
  if (call.operands.size() == 1) return call.result(DType::i64, shape);
  const TensorType& weights = call.operand(1);
  if (!(kFloating | DType::i64 | DType::u64).has(weights.dtype)) call.refuse_dtype(1);
  if (weights.shape != x.shape)
    call.fail<ShapeError>(1011, "ShapeError", "weights must have one number per integer",
                          {"", "should be " + to_string(x.shape)});
  return call.result(weights.dtype, shape);
}

TensorType Flatnonzero::infer(const InferCall& call) const {
  if (!kRealOrBoolean.has(call.operand(0).dtype)) call.refuse_dtype(0);
  call.require_wanted_dtype(DType::i64, "i64");
  if (call.wanted.shape.rank() != 1)
    call.fail<ShapeError>(1025, "ShapeError",
                          fmt::format("the result must have one axis, not {}", to_string(call.wanted.shape)));
  check_shape(name(call.op), call.wanted.shape, DType::i64, call.where);
  return call.wanted;
}

Example<Flatnonzero> Flatnonzero::example() {
  static constexpr std::int64_t kSize[] = {2};
  return {{{DType::f32, Shape{3, 4}}}, {.size = {kSize}}, DType::i64};
}

}  // namespace fermata::ops
