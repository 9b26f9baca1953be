// See fermata/views.h: the arguments of views, and the calls that they become.
#include "fermata/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "frontend/engine/alias.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "frontend/ops/slice_arguments.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

Tensor part(const Tensor& x, unsigned axis, std::int64_t start, std::int64_t count, Location where) {
  SliceArguments arguments(x.shape());
  arguments.set(axis, start, count, 1);
  return arguments.apply(x, where);
}

}  // namespace

Tensor reshape(const Tensor& x, const IntegerList& sizes, Location where) {
  require_defined("reshape", x, where);
  const Shape shape = resolve_reshape(sizes, type_of(x), where);
  return shape == x.shape() ? x : make_view(Op::reshape, x, {}, shape, where);
}

Tensor permute(const Tensor& x, const IntegerList& axes, Location where) {
  require_defined("permute", x, where);
  std::vector<std::int64_t> sources;
  for (const std::int64_t axis : axes) sources.push_back(normalize_axis("permute", axis, type_of(x), where));
  return make_view(Op::permute, x, encode(ops::Permute{.axes = {sources}}), {}, where);
}

Tensor transpose(const Tensor& x, std::int64_t first, std::int64_t second, Location where) {
  require_defined("transpose", x, where);
  const unsigned a = normalize_axis("transpose", first, type_of(x), where);
  const unsigned b = normalize_axis("transpose", second, type_of(x), where);
  Shape sources;
  for (unsigned i = 0; i < x.rank(); ++i) sources.push_back(i);
  std::swap(sources[a], sources[b]);
  return make_view(Op::permute, x, encode(ops::Permute{.axes = {sources}}), {}, where);
}

Tensor expand_dims(const Tensor& x, const IntegerList& axes, Location where) {
  require_defined("expand_dims", x, where);
  if (axes.empty()) return x;
  TensorType result = type_of(x);  // only its rank matters to how axes are counted
  if (result.shape.size() + axes.size() > kMaxRank)
    throw ShapeError(1003, format_error(1003, "ShapeError",
                                        fmt::format("expand_dims: {} axes, more than {}",
                                                    result.shape.size() + axes.size(), kMaxRank),
                                        describe(x), where));
  for (std::size_t i = 0; i < axes.size(); ++i) result.shape.push_back(1);
  const std::uint16_t mask = axes_mask("expand_dims", axes, result, where);
  for (unsigned i = 0, from = 0; i < result.shape.rank(); ++i)
    result.shape[i] = (mask >> i & 1) != 0 ? 1 : x.shape()[from++];
  return make_view(Op::expand_dims, x, encode(ops::ExpandDims{.axes = {mask}}), result.shape, where);
}

Tensor squeeze(const Tensor& x, const IntegerList& axes, Location where) {
  require_defined("squeeze", x, where);
  std::uint64_t mask = 0;
  const Shape shape = x.shape();
  if (axes.names_none()) return x;
  if (!axes.empty())
    mask = axes_mask("squeeze", axes, type_of(x), where);
  else
    for (unsigned i = 0; i < shape.rank(); ++i) mask |= shape[i] == 1 ? std::uint64_t{1} << i : 0;
  return mask == 0 ? x : make_view(Op::squeeze, x, encode(ops::Squeeze{.axes = {mask}}), {}, where);
}

Tensor broadcast_to(const Tensor& x, const IntegerList& sizes, Location where) {
  require_defined("broadcast_to", x, where);
  check_shape("broadcast_to", sizes, x.dtype(), where);
  const Shape shape(sizes);
  return shape == x.shape() ? x : make_view(Op::broadcast_to, x, {}, shape, where);
}

Tensor flip(const Tensor& x, const IntegerList& axes, Location where) {
  require_defined("flip", x, where);
  if (axes.names_none()) return x;
  const std::uint16_t mask = axes_mask("flip", axes, type_of(x), where);
  SliceArguments arguments(x.shape());
  for (unsigned i = 0; i < arguments.counts.rank(); ++i)
    if ((mask >> i & 1) != 0) arguments.set(i, arguments.counts[i] - 1, arguments.counts[i], -1);
  return arguments.apply(x, where);
}

Tensor slice(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t stop, std::int64_t step,
             Location where) {
  require_defined("slice", x, where);
  const unsigned at = normalize_axis("slice", axis, type_of(x), where);
  SliceArguments arguments(x.shape());
  arguments.set(at, slice_range(arguments.counts[at], start, stop, step), step);
  return arguments.apply(x, where);
}

Tensor select(const Tensor& x, std::int64_t axis, std::int64_t position, Location where) {
  require_defined("select", x, where);
  const unsigned at = normalize_axis("select", axis, type_of(x), where);
  const std::int64_t size = x.shape()[at];
  if (position < -size || position >= size)
    throw IndexError(
        1205,
        format_error(1205, "IndexError", fmt::format("select: position {} is out of range for axis {}", position, at),
                     {{"x", to_string(x.dtype(), x.shape()), fmt::format("axis {} is {}", at, size)}}, where));
  return squeeze(part(x, at, position < 0 ? position + size : position, 1, where), at, where);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t parts, std::int64_t axis, Location where) {
  require_defined("split", x, where);
  const unsigned at = normalize_axis("split", axis, type_of(x), where);
  const std::int64_t size = x.shape()[at];
  if (parts <= 0 || size % parts != 0)
    throw ShapeError(
        1019,
        format_error(1019, "ShapeError", fmt::format("split: the axis does not divide into {} equal parts", parts),
                     {{"x", to_string(x.dtype(), x.shape()), fmt::format("axis {} is {}", at, size)}}, where));
  return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(parts), size / parts), axis, where);
}

std::vector<Tensor> split(const Tensor& x, const IntegerList& sizes, std::int64_t axis, Location where) {
  require_defined("split", x, where);
  const unsigned at = normalize_axis("split", axis, type_of(x), where);
  std::int64_t left = x.shape()[at];
  for (const std::int64_t size : sizes) left = size < 0 || size > left ? -1 : left - size;
  if (left != 0)
    throw ShapeError(
        1019,
        format_error(1019, "ShapeError",
                     fmt::format("split: the sizes {} do not add up to the axis",
                                 to_string(std::span<const std::int64_t>(sizes))),
                     {{"x", to_string(x.dtype(), x.shape()), fmt::format("axis {} is {}", at, x.shape()[at])}}, where));
  std::vector<Tensor> result;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    result.push_back(part(x, at, start, size, where));
    start += size;
  }
  return result;
}

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor reshape_vjp(const VjpArgs& args, unsigned) { return reshape(args.g, args.shape(0)); }
VjpTensor expand_dims_vjp(const VjpArgs& args, unsigned) {
  return squeeze(args.g, static_cast<std::uint16_t>(args.attributes_of<ops::ExpandDims>().axes.value));
}
VjpTensor squeeze_vjp(const VjpArgs& args, unsigned) {
  return expand_dims(args.g, static_cast<std::uint16_t>(args.attributes_of<ops::Squeeze>().axes.value));
}
VjpTensor broadcast_to_vjp(const VjpArgs& args, unsigned) { return sum_to(args.g, args.shape(0)); }

VjpTensor permute_vjp(const VjpArgs& args, unsigned) {
  const Integers axes = args.attributes_of<ops::Permute>().axes.value;
  std::vector<std::int64_t> back(axes.size());
  for (std::size_t i = 0; i < back.size(); ++i) back[static_cast<std::size_t>(axes[i])] = static_cast<std::int64_t>(i);
  return permute(args.g, back);
}

VjpTensor slice_vjp(const VjpArgs& args, unsigned) {
  const Shape& from = args.shape(0);
  const Shape dense = dense_strides(from);
  // The counts of a slice are the shape of the result: only the lists are among the integers.
  const auto slice = decode<ops::Slice>({.attributes = args.attributes(), .shape = {}, .scalars = {}});
  Shape strides;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < from.rank(); ++i) {
    offset += slice.start.value[i] * dense[i];
    strides.push_back(slice.step.value[i] * dense[i]);
  }
  return update(full(0, {args.g.dtype(), from}, args.g), args.g, offset, strides);
}

Tensor batched_permute(const BatchedCall& call) {
  std::vector<std::int64_t> axes{0};
  for (const std::int64_t axis : attributes_of<ops::Permute>(call.attributes).axes.value) axes.push_back(axis + 1);
  return moved_axes(call, axes);
}

Tensor batched_slice(const BatchedCall& call) {
  const auto given = attributes_of<ops::Slice>(call.attributes);
  Shape start{0}, step{1};
  for (const std::int64_t at : given.start.value) start.push_back(at);
  for (const std::int64_t by : given.step.value) step.push_back(by);
  return vjp::slice(call.operands[0].value, start, step, call.whole().shape).tensor();
}

Tensor batched_broadcast_to(const BatchedCall& call) {
  const unsigned missing = call.type.shape.rank() - call.shape(0).rank();
  const auto added = static_cast<std::uint16_t>(((1u << missing) - 1u) << 1);
  return vjp::broadcast_to(vjp::expand_dims(call.operands[0].value, added), call.whole().shape).tensor();
}

}  // namespace

FERMATA_OP_RULES(reshape, batched_by_type, gradient(reshape_vjp));
FERMATA_OP_RULES(expand_dims, batched_in_front, gradient(expand_dims_vjp));
FERMATA_OP_RULES(squeeze, batched_in_front, gradient(squeeze_vjp));
FERMATA_OP_RULES(permute, batched_permute, gradient(permute_vjp));
FERMATA_OP_RULES(slice, batched_slice, gradient(slice_vjp));
FERMATA_OP_RULES(broadcast_to, batched_broadcast_to, gradient(broadcast_to_vjp));

}  // namespace vjp

}  // namespace fermata
