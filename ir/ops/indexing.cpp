// See indexing.h.
#include "ir/ops/indexing.h"

#include <fmt/format.h>

namespace fermata::ops {
namespace {

/// x with axis `axis` replaced by the axes of `index`.
Shape gathered_shape(const InferCall& call, std::int64_t given) {
  const TensorType& x = call.operand(0);
  const unsigned axis = call.axis(given, x);
  std::vector<std::int64_t> sizes(x.shape.begin(), x.shape.begin() + axis);
  sizes.insert(sizes.end(), call.operand(1).shape.begin(), call.operand(1).shape.end());
  sizes.insert(sizes.end(), x.shape.begin() + axis + 1, x.shape.end());
  check_shape(name(call.op), sizes, x.dtype, call.where);
  return Shape(sizes);
}

/// The index has the axes of x, none longer than that of x but the one that is indexed.
unsigned require_index_shape(const InferCall& call, std::int64_t given) {
  call.require_index_dtype();
  const TensorType &x = call.operand(0), &index = call.operand(1);
  const unsigned axis = call.axis(given, x);
  bool fits = index.shape.rank() == x.shape.rank();
  for (unsigned i = 0; fits && i < x.shape.rank(); ++i) fits = i == axis || index.shape[i] <= x.shape[i];
  if (!fits)
    call.fail<ShapeError>(
        1070, "ShapeError",
        fmt::format("index must have the rank of x and be no longer than x, except along axis {}", axis));
  return axis;
}

}  // namespace

TensorType Take::infer(const InferCall& call) const {
  call.require_index_dtype();
  const TensorType& x = call.operand(0);
  const TensorType result{x.dtype, gathered_shape(call, axis.value)};
  const unsigned along = call.axis(axis.value, x);
  if (x.shape[along] == 0 && element_count(call.operand(1).shape) != 0)
    call.fail<ShapeError>(1009, "ShapeError", "no elements", {fmt::format("axis {} is 0", along)});
  return result;
}

TensorType IndexAdd::infer(const InferCall& call) const {
  call.require_index_dtype();
  call.require_same_dtype(0, 2);
  if (!kNumbers.has(call.operand(0).dtype)) call.refuse_dtype(0);
  const Shape expected = gathered_shape(call, axis.value);
  if (call.operand(2).shape != expected)
    call.fail<ShapeError>(1011, "ShapeError", "the shape of source does not match",
                          {"", "", "should be " + to_string(expected)});
  return call.operand(0);
}

TensorType Gather::infer(const InferCall& call) const {
  const TensorType &x = call.operand(0), &index = call.operand(1);
  const unsigned along = require_index_shape(call, axis.value);
  if (x.shape[along] == 0 && element_count(index.shape) != 0)
    call.fail<ShapeError>(1009, "ShapeError", "no elements", {fmt::format("axis {} is 0", along)});
  return call.result(x.dtype, index.shape);
}

TensorType Scatter::infer(const InferCall& call) const {
  require_index_shape(call, axis.value);
  call.require_same_dtype(0, 2);
  const bool orders = call.op == Op::scatter_maximum || call.op == Op::scatter_minimum;
  const DTypeSet accepted = call.op == Op::scatter ? kStored : orders ? kReal : kNumbers;
  if (!accepted.has(call.operand(0).dtype)) call.refuse_dtype(0);
  const Shape& expected = call.operand(1).shape;
  if (call.operand(2).shape != expected)
    call.fail<ShapeError>(1011, "ShapeError", "the shape of source does not match",
                          {"", "", "should be " + to_string(expected)});
  return call.operand(0);
}

TensorType GridSample::infer(const InferCall& call) const {
  const TensorType &x = call.operand(0), &grid = call.operand(1);
  for (std::size_t k = 0; k < 2; ++k)
    if (call.operand(k).dtype != DType::f32 && call.operand(k).dtype != DType::f64) call.refuse_dtype(k);
  call.require_same_dtype(0, 1);
  const std::int64_t axes = static_cast<std::int64_t>(x.shape.rank()) - 2;
  if (axes < 1 || grid.shape.rank() != 3 || grid.shape[2] != axes || grid.shape[0] != x.shape[0])
    call.fail<ShapeError>(1077, "ShapeError", "x [N, C, ..S] and grid [N, P, axes of S] do not match");
  for (unsigned k = 2; k < x.shape.rank(); ++k)
    if (x.shape[k] == 0) call.fail<ShapeError>(1077, "ShapeError", "images without elements");
  if (mode.value < 0 || mode.value > 2 || padding.value < 0 || padding.value > 2)
    call.fail<ValueError>(1377, "ValueError", fmt::format("no mode {} with padding {}", mode.value, padding.value));
  return call.result(x.dtype, Shape{x.shape[0], x.shape[1], grid.shape[1]});
}

}  // namespace fermata::ops
