// See vjp_tensor.h.
#include "frontend/transforms/autograd/vjp_tensor.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "frontend/ops/op_rules.h"

namespace fermata::vjp {

constinit thread_local Location current_line{};

namespace {

/// Axes of a view over row-major elements as a slice of the base followed by moving axes.
struct StridedSlice {
  Shape starts, steps, counts;
  std::vector<std::int64_t> order;  // source axis per axis of the view; -1 where the view's axis is new
};

std::optional<StridedSlice> as_slice(const Shape& base, std::int64_t offset, const Shape& strides, const Shape& sizes) {
  const Shape dense = dense_strides(base);
  StridedSlice s;
  for (std::size_t i = 0; i < base.rank(); ++i) {
    s.starts.push_back(dense[i] == 0 ? 0 : offset / dense[i] % base[i]);
    s.steps.push_back(1), s.counts.push_back(1);
  }
  unsigned used = 0;
  for (std::size_t j = 0; j < sizes.rank(); ++j) {
    s.order.push_back(-1);
    if (sizes[j] == 1) continue;
    for (std::size_t i = 0; i < base.rank() && s.order[j] < 0; ++i) {
      if ((used >> i & 1u) != 0 || base[i] == 1 || strides[j] == 0 || strides[j] % dense[i] != 0) continue;
      const std::int64_t step = strides[j] / dense[i], last = s.starts[i] + step * (sizes[j] - 1);
      if (last < 0 || last >= base[i]) continue;
      s.order[j] = static_cast<std::int64_t>(i), s.steps[i] = step, s.counts[i] = sizes[j];
      used |= 1u << i;
    }
    if (s.order[j] < 0) return std::nullopt;
  }
  return s;
}

VjpTensor read_slice(const VjpTensor& x, const StridedSlice& s) {
  const VjpTensor part = slice(x, s.starts, s.steps, s.counts);
  std::uint16_t dropped = 0, added = 0;
  std::vector<std::int64_t> kept, axes;
  for (std::size_t i = 0; i < s.counts.rank(); ++i)
    if (std::ranges::find(s.order, static_cast<std::int64_t>(i)) == s.order.end())
      dropped = static_cast<std::uint16_t>(dropped | 1u << i);
    else
      kept.push_back(static_cast<std::int64_t>(i));
  for (std::size_t j = 0; j < s.order.size(); ++j)
    if (s.order[j] < 0)
      added = static_cast<std::uint16_t>(added | 1u << j);
    else
      axes.push_back(std::ranges::find(kept, s.order[j]) - kept.begin());
  return expand_dims(permute(squeeze(part, dropped), axes), added);
}

}  // namespace

VjpTensor call(Op op, const VjpTensor& x) {
  return Dispatcher<UnaryCall>::call(operator_entry(op), current_line, x.operand());
}
VjpTensor call(Op op, const VjpTensor& a, const VjpTensor& b) {
  return Dispatcher<BinaryCall>::call(operator_entry(op), current_line, a.operand(), b.operand());
}
VjpTensor call(Op op, const VjpTensor& a, const VjpTensor& b, const VjpTensor& c) {
  return Dispatcher<TernaryCall>::call(operator_entry(op), current_line, a.operand(), b.operand(), c.operand());
}
VjpTensor call(Op op, std::span<const Tensor> tensors, std::span<const std::int64_t> attributes,
               const TensorType& wanted) {
  const Attributes arguments{.wanted = wanted, .integers = attributes, .scalars = {}};
  return Dispatcher<GeneralCall>::call(operator_entry(op), current_line, tensors, arguments);
}

namespace {

/// Creation ops have no operand to take a device from.
VjpTensor create(Op op, const Attributes& attributes, const VjpTensor& like) {
  const DispatchKeySet keys = ((like.tensor().keys() & kDataKeys) | thread_keys.included) - thread_keys.excluded;
  return Dispatcher<GeneralCall>::call_with(operator_entry(op), keys, current_line, {}, attributes);
}

}  // namespace

VjpTensor full(double value, const TensorType& type, const VjpTensor& like) {
  const ops::Full full{.value = {scalar_bits(value, type.dtype)}, .shape = {type.shape}, .dtype = {type.dtype}};
  return create(Op::full, EncodedAttributes(full), like);
}

VjpTensor iota(const Shape& sizes, std::int64_t axis, const VjpTensor& like) {
  const ops::Iota iota{.axis = {axis}, .shape = {sizes}};
  return create(Op::iota, EncodedAttributes(iota, DType::i64), like);
}

VjpTensor cast(const VjpTensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (is_complex(x.dtype()) && kReal.has(dtype)) return cast(call(Op::real, x), dtype);
  return call(Op::cast, {&x.tensor(), 1}, {}, {dtype, x.shape()});  // by its type: a cast keeps the shape
}

VjpTensor reduce(Op op, const VjpTensor& x, std::uint16_t axes, bool keepdims) {
  return call(op, ops::Reduction{.axes = {axes}, .keepdims = {keepdims}}, {&x.tensor(), 1});
}

VjpTensor reshape(const VjpTensor& x, const Shape& sizes) {
  if (x.shape() == sizes) return x;
  return call<Op::reshape>({.shape = {sizes}}, {&x.tensor(), 1}, x.dtype());
}

VjpTensor expand_dims(const VjpTensor& x, std::uint16_t axes) {
  if (axes == 0) return x;
  return call<Op::expand_dims>({.axes = {axes}}, {&x.tensor(), 1});
}

VjpTensor squeeze(const VjpTensor& x, std::uint16_t axes) {
  if (axes == 0) return x;
  return call<Op::squeeze>({.axes = {axes}}, {&x.tensor(), 1});
}

VjpTensor permute(const VjpTensor& x, std::span<const std::int64_t> axes) {
  if (std::ranges::is_sorted(axes)) return x;
  return call<Op::permute>({.axes = {axes}}, {&x.tensor(), 1});
}

VjpTensor transpose(const VjpTensor& x) {
  std::vector<std::int64_t> axes(x.shape().rank());
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::int64_t>(i);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return permute(x, axes);
}

VjpTensor slice(const VjpTensor& x, const Shape& starts, const Shape& steps, const Shape& counts) {
  return call<Op::slice>({.start = {starts}, .step = {steps}, .counts = {counts}}, {&x.tensor(), 1}, x.dtype());
}

VjpTensor broadcast_to(const VjpTensor& x, const Shape& sizes) {
  if (x.shape() == sizes) return x;
  return call<Op::broadcast_to>({.shape = {sizes}}, {&x.tensor(), 1}, x.dtype());
}

VjpTensor concat(std::span<const VjpTensor> parts, std::int64_t axis) {
  std::vector<Tensor> tensors;
  for (const VjpTensor& part : parts) tensors.push_back(part.tensor());
  return call<Op::concat>({.axis = {axis}}, tensors);
}

VjpTensor take(const VjpTensor& x, const VjpTensor& index, std::int64_t axis) {
  const std::array<Tensor, 2> tensors{x.tensor(), index.tensor()};
  return call<Op::take>({.axis = {axis}}, tensors);
}

VjpTensor index_add(const VjpTensor& x, const VjpTensor& index, const VjpTensor& source, std::int64_t axis) {
  const std::array<Tensor, 3> tensors{x.tensor(), index.tensor(), source.tensor()};
  return call<Op::index_add>({.axis = {axis}}, tensors);
}

VjpTensor update(const VjpTensor& x, const VjpTensor& values, std::int64_t offset, const Shape& strides) {
  const std::array<Tensor, 2> tensors{x.tensor(), values.tensor()};
  return call<Op::update>({.offset = {offset}, .strides = {strides}}, tensors);
}

VjpTensor matmul(const VjpTensor& a, const VjpTensor& b) {
  const std::array<Tensor, 2> tensors{a.tensor(), b.tensor()};
  return call(Op::matmul, tensors, {});
}

VjpTensor sum_to(const VjpTensor& x, const Shape& sizes) {
  const Shape from = x.shape();
  if (from == sizes) return x;
  const std::uint16_t stretched = stretched_axes(sizes, from);
  const auto leading = static_cast<std::uint16_t>((1u << (from.rank() - sizes.rank())) - 1u);
  if (stretched == leading) return reduce(Op::sum, x, stretched, false);
  return squeeze(reduce(Op::sum, x, stretched, true), leading);
}

VjpTensor read_strided(const VjpTensor& x, std::int64_t offset, const Shape& strides, const Shape& sizes) {
  const Shape base = x.shape();
  if (element_count(sizes) == 0) return full(0, {x.dtype(), sizes}, x);
  if (const auto s = as_slice(base, offset, strides, sizes)) return read_slice(x, *s);
  VjpTensor position = full(static_cast<double>(offset), {DType::i64, sizes}, x);
  for (std::size_t j = 0; j < sizes.rank(); ++j)
    if (sizes[j] > 1) position = position + iota(sizes, static_cast<std::int64_t>(j), x) * strides[j];
  return take(reshape(x, {element_count(base)}), position, 0);
}

}  // namespace fermata::vjp
