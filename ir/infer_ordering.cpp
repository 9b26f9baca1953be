// Inference of the ops of ir/ops/ordering.def: scans, sorting and searching.
#include <fmt/format.h>

#include "ir/infer_call.h"

namespace fermata {
namespace {

/// A scan keeps the shape. Its operand has been cast to what the rule accumulates in.
TensorType infer_scan(const InferCall& call, DTypeRule rule) {
  const TensorType& x = call.operand(0);
  call.axis_attribute(x);
  const auto accepted = apply_rule(rule, x.dtype);
  if (!accepted || accepted->operand != x.dtype) call.refuse_dtype(0);
  return x;
}

unsigned ordered_axis(const InferCall& call) {
  if (!kRealOrBoolean.has(call.operand(0).dtype)) call.refuse_dtype(0);
  return call.axis_attribute(call.operand(0));
}

TensorType infer_top_k_indices(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const unsigned axis = ordered_axis(call);
  const std::int64_t k = call.attributes[1];
  if (k < 0 || k > x.shape[axis])
    call.fail<ValueError>(1312, "ValueError", fmt::format("k is {}, not 0 to {}", k, x.shape[axis]),
                          {fmt::format("axis {} is {}", axis, x.shape[axis])});
  Shape shape = x.shape;
  shape[axis] = k;
  return {DType::i64, shape};
}

TensorType infer_searchsorted(const InferCall& call) {
  const TensorType& sorted = call.operand(0);
  call.require_same_dtype(0, 1);
  if (!kRealOrBoolean.has(sorted.dtype)) call.refuse_dtype(0);
  if (sorted.shape.rank() != 1)
    call.fail<ShapeError>(1024, "ShapeError", "the first operand is a sorted vector, with one axis",
                          {fmt::format("{} axes", sorted.shape.rank())});
  return call.result(DType::i64, call.operand(1).shape);
}

TensorType infer_flatnonzero(const InferCall& call) {
  if (!kRealOrBoolean.has(call.operand(0).dtype)) call.refuse_dtype(0);
  call.require_wanted_dtype(DType::i64, "i64");
  if (call.wanted.shape.rank() != 1)
    call.fail<ShapeError>(1025, "ShapeError",
                          fmt::format("the result has one axis, not {}", to_string(call.wanted.shape)));
  check_shape(name(call.op), call.wanted.shape, DType::i64, call.where);
  return call.wanted;
}

}  // namespace

std::optional<TensorType> infer_ordering(const InferCall& call) {
  const auto expect = [&](std::size_t operands, std::size_t attributes) {
    if (call.operands.size() != operands || call.attributes.size() != attributes)
      throw_internal(call.headline("wrong number of operands or attributes"), call.where);
  };
  switch (call.op) {
#define FERMATA_SCAN(name, monoid, rule, doc) \
  case Op::name:                              \
    expect(1, 1);                             \
    return infer_scan(call, DTypeRule::rule);
#include "ir/ops.def"
    case Op::sort: expect(1, 2), ordered_axis(call); return call.operand(0);
    case Op::argsort: expect(1, 2), ordered_axis(call); return call.result(DType::i64, call.operand(0).shape);
    case Op::top_k_indices: expect(1, 3); return infer_top_k_indices(call);
    case Op::searchsorted: expect(2, 1); return infer_searchsorted(call);
    case Op::flatnonzero: expect(1, 0); return infer_flatnonzero(call);
    default: return std::nullopt;
  }
}

}  // namespace fermata
