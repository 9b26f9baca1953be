// See fermata/indexing.h.
#include "fermata/indexing.h"

#include <fmt/format.h>

#include <array>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

Tensor scatter_call(Op op, std::span<const Tensor> operands, std::int64_t axis, Location where) {
  return general_call(op, ops::Scatter{.axis = {axis}}, operands, where);
}

std::vector<ErrorOperand> lines_of(const Tensor& x, const Tensor& index, const Tensor* source = nullptr) {
  std::vector<ErrorOperand> lines{{"x", to_string(x.dtype(), x.shape()), ""},
                                  {"index", to_string(index.dtype(), index.shape()), ""}};
  if (source != nullptr) lines.push_back({"source", to_string(source->dtype(), source->shape()), ""});
  return lines;
}

unsigned checked_axis(std::string_view function, std::initializer_list<const Tensor*> tensors, std::int64_t axis,
                      Location where) {
  for (const Tensor* t : tensors) require_defined(function, *t, where);
  return normalize_axis(function, axis, type_of(**tensors.begin()), where);
}

/// The first elements of x along every axis, as many as `sizes` says; x itself where it has fewer, for inference to
/// refuse.
Tensor first_elements(const Tensor& x, const Shape& sizes, Location where) {
  if (x.shape() == sizes || x.rank() != sizes.rank()) return x;
  for (unsigned i = 0; i < sizes.rank(); ++i)
    if (sizes[i] > x.shape()[i]) return x;
  Tensor part = x;
  for (unsigned i = 0; i < sizes.rank(); ++i)
    if (sizes[i] != x.shape()[i]) part = slice(part, i, 0, sizes[i], 1, where);
  return part;
}

Tensor scatter_by(Op op, const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis,
                  Location where) {
  axis = checked_axis(name(op), {&x, &index, &source}, axis, where);
  const Tensor operands[] = {x, index, astype(first_elements(source, index.shape(), where), x.dtype(), where)};
  return scatter_call(op, operands, axis, where);
}

/// The common shape of tensors of equal rank but for one axis, which is 0; ShapeError naming the function.
Shape common_shape(std::string_view function, const Tensor& x, const Tensor& index, unsigned axis, Location where) {
  Shape a = x.shape(), b = index.shape();
  std::optional<Shape> common;
  if (a.rank() == b.rank()) a[axis] = b[axis] = 1, common = broadcast_shapes(a, b);
  if (common) return *common;
  throw ShapeError(1001,
                   format_error(1001, "ShapeError",
                                fmt::format("{}: shapes do not broadcast along the axes other than {}", function, axis),
                                lines_of(x, index), where));
}
Tensor stretched(const Tensor& x, Shape shape, unsigned axis, Location where) {
  shape[axis] = x.shape()[axis];
  return broadcast_to(x, shape, where);
}

/// A vector of positions along an axis as an index of the shape of `like`.
Tensor positions_along(std::string_view function, const Tensor& index, const Shape& like, unsigned axis,
                       const Tensor& x, Location where) {
  if (index.rank() != 1)
    throw ShapeError(1015, format_error(1015, "ShapeError", fmt::format("{}: positions must be a vector", function),
                                        lines_of(x, index), where));
  Shape open(like);
  for (std::int64_t& size : open) size = 1;
  open[axis] = index.size(0);
  Shape shape(like);
  shape[axis] = index.size(0);
  return broadcast_to(reshape(index, open, where), shape, where);
}

}  // namespace

Tensor gather(const Tensor& x, const Tensor& index, std::int64_t axis, Location where) {
  axis = checked_axis("gather", {&x, &index}, axis, where);
  return general_call<Op::gather>({.axis = {axis}}, std::array{x, index}, where);
}

Tensor take_along_axis(const Tensor& x, const Tensor& index, std::int64_t axis, Location where) {
  const unsigned at = checked_axis("take_along_axis", {&x, &index}, axis, where);
  const Shape common = common_shape("take_along_axis", x, index, at, where);
  return gather(stretched(x, common, at, where), stretched(index, common, at, where), at, where);
}

Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis, Location where) {
  return scatter_by(Op::scatter, x, index, source, axis, where);
}
Tensor scatter(const Tensor& x, const Tensor& index, Scalar value, std::int64_t axis, Location where) {
  checked_axis("scatter", {&x, &index}, axis, where);
  return scatter(x, index, broadcast_to(full({}, value, x.dtype(), device(x), where), index.shape(), where), axis,
                 where);
}
Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis, Location where) {
  return scatter_by(Op::scatter_add, x, index, source, axis, where);
}

Tensor scatter_reduce(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis,
                      ScatterReduction reduction, bool include_self, Location where) {
  checked_axis("scatter_reduce", {&x, &index, &source}, axis, where);
  const auto start = [&](auto&& value) { return include_self ? x : scatter(x, index, value, axis, where); };
  switch (reduction) {
    case ScatterReduction::sum: return scatter_add(start(Scalar(0)), index, source, axis, where);
    case ScatterReduction::prod: return scatter_by(Op::scatter_multiply, start(Scalar(1)), index, source, axis, where);
    case ScatterReduction::amax: return scatter_by(Op::scatter_maximum, start(source), index, source, axis, where);
    case ScatterReduction::amin: return scatter_by(Op::scatter_minimum, start(source), index, source, axis, where);
    case ScatterReduction::mean: break;
  }
  const Tensor total = scatter_add(start(Scalar(0)), index, source, axis, where);
  const Tensor own = include_self ? ones_like(x, DType::i64, where)
                                  : scatter(ones_like(x, DType::i64, where), index, Scalar(0), axis, where);
  const Tensor count = scatter_add(own, index, ones_like(index, DType::i64, where), axis, where);
  if (is_floating(x.dtype())) return divide({total, where}, astype(count, x.dtype(), where));
  return floor_divide({total, where}, astype(count, x.dtype(), where));
}

Tensor put_along_axis(const Tensor& x, const Tensor& index, const Tensor& values, std::int64_t axis, Location where) {
  const unsigned at = checked_axis("put_along_axis", {&x, &index, &values}, axis, where);
  Shape shape = x.shape();
  common_shape("put_along_axis", x, index, at, where);
  shape[at] = index.shape()[at];
  return scatter(x, stretched(index, shape, at, where), broadcast_to(values, shape, where), at, where);
}

Tensor index_copy(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis, Location where) {
  const unsigned at = checked_axis("index_copy", {&x, &index, &source}, axis, where);
  const Tensor positions = positions_along("index_copy", index, x.shape(), at, x, where);
  if (source.shape() != positions.shape()) {
    std::vector<ErrorOperand> lines = lines_of(x, index, &source);
    lines[2].note = "should be " + to_string(positions.shape());
    throw ShapeError(1011,
                     format_error(1011, "ShapeError", "index_copy: the shape of source does not match", lines, where));
  }
  return scatter(x, positions, source, at, where);
}

Tensor index_fill(const Tensor& x, const Tensor& index, Scalar value, std::int64_t axis, Location where) {
  const unsigned at = checked_axis("index_fill", {&x, &index}, axis, where);
  return scatter(x, positions_along("index_fill", index, x.shape(), at, x, where), value, at, where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor zeros_of(const VjpTensor& like, const Shape& shape) { return full(0, {like.dtype(), shape}, like); }

VjpTensor gather(const VjpTensor& x, const VjpTensor& index, const VjpArgs& args) {
  return call(Op::gather, std::array{x.tensor(), index.tensor()}, args.attributes());
}
VjpTensor scatter(Op op, const VjpTensor& x, const VjpTensor& index, const VjpTensor& source, const VjpArgs& args) {
  return call(op, std::array{x.tensor(), index.tensor(), source.tensor()}, args.attributes());
}

VjpTensor gather_vjp(const VjpArgs& args, unsigned) {
  return scatter(Op::scatter_add, zeros_of(args.g, args.shape(0)), args.x[1], args.g, args);
}

VjpTensor scatter_add_source_vjp(const VjpArgs& args, unsigned) { return gather(args.g, args.x[1], args); }

VjpTensor scatter_vjp(const VjpArgs& args, unsigned) {
  return scatter(Op::scatter, args.g, args.x[1], zeros_of(args.g, args.shape(1)), args);
}
/// Of several elements that went to one place, only the one that stayed.
VjpTensor scatter_source_vjp(const VjpArgs& args, unsigned) {
  const Shape& shape = args.shape(1);
  const VjpTensor number = reshape(iota({element_count(shape)}, 0, args.g), shape);
  const VjpTensor none = full(-1, {DType::i64, args.shape(0)}, args.g);
  const VjpTensor last = gather(scatter(Op::scatter, none, args.x[1], number, args), args.x[1], args);
  return where(last == number, gather(args.g, args.x[1], args), 0);
}

/// Products without the zeros, and how many zeros there are: what is left of a product when one factor is taken out.
struct Factors {
  explicit Factors(const VjpArgs& args) {
    const VjpTensor &x = args.x[0], &index = args.x[1], &source = args.x[2];
    products = scatter(Op::scatter_multiply, where(x == 0, 1, x), index, where(source == 0, 1, source), args);
    zeros = scatter(Op::scatter_add, cast(x == 0, DType::i64), index, cast(source == 0, DType::i64), args);
  }
  static VjpTensor others(const VjpTensor& factor, const VjpTensor& product, const VjpTensor& zero_count) {
    const VjpTensor own = factor == 0;
    return where(zero_count == cast(own, DType::i64), product / where(own, 1, factor), 0);
  }
  VjpTensor products, zeros;
};
VjpTensor scatter_multiply_vjp(const VjpArgs& args, unsigned) {
  const Factors f(args);
  return args.g * Factors::others(args.x[0], f.products, f.zeros);
}
VjpTensor scatter_multiply_source_vjp(const VjpArgs& args, unsigned) {
  const Factors f(args);
  const VjpTensor &index = args.x[1], &source = args.x[2];
  return gather(args.g, index, args) *
         Factors::others(source, gather(f.products, index, args), gather(f.zeros, index, args));
}

/// The gradient of an extreme value, in equal parts for all that have it.
struct Shares {
  explicit Shares(const VjpArgs& args) : of_source(args.x[2] == gather(args.y, args.x[1], args)) {
    of_x = args.x[0] == args.y;
    const VjpTensor count =
        scatter(Op::scatter_add, cast(of_x, args.g.dtype()), args.x[1], cast(of_source, args.g.dtype()), args);
    each = args.g / where(count == 0, 1, count);
  }
  VjpTensor of_source, of_x, each;
};
VjpTensor scatter_extreme_vjp(const VjpArgs& args, unsigned) {
  const Shares s(args);
  return where(s.of_x, s.each, 0);
}
VjpTensor scatter_extreme_source_vjp(const VjpArgs& args, unsigned) {
  const Shares s(args);
  return where(s.of_source, gather(s.each, args.x[1], args), 0);
}

}  // namespace

FERMATA_OP_RULES(gather, batched_in_front, gradient(gather_vjp, kSecond), kZeroGradient);
FERMATA_OP_RULES(scatter, batched_in_front, gradient(scatter_vjp, kSecond), kZeroGradient,
                 gradient(scatter_source_vjp, kSecond));
FERMATA_OP_RULES(scatter_add, batched_in_front, kSameGradient, kZeroGradient,
                 gradient(scatter_add_source_vjp, kSecond));
FERMATA_OP_RULES(scatter_multiply, batched_in_front, gradient(scatter_multiply_vjp, kFirst | kSecond | kThird),
                 kZeroGradient, gradient(scatter_multiply_source_vjp, kFirst | kSecond | kThird));
FERMATA_OP_RULES(scatter_maximum, batched_in_front, gradient(scatter_extreme_vjp, kFirst | kSecond | kThird | kResult),
                 kZeroGradient, gradient(scatter_extreme_source_vjp, kFirst | kSecond | kThird | kResult));
FERMATA_OP_RULES(scatter_minimum, batched_in_front, gradient(scatter_extreme_vjp, kFirst | kSecond | kThird | kResult),
                 kZeroGradient, gradient(scatter_extreme_source_vjp, kFirst | kSecond | kThird | kResult));

}  // namespace vjp

}  // namespace fermata
