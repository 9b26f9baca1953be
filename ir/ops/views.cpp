// See views.h. apply() is arithmetic on strides.
#include "ir/ops/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/convolution.h"
#include "ir/view.h"

namespace fermata::ops {
namespace {

std::string count_note(const Shape& shape) {
  const std::int64_t count = element_count(shape);
  return fmt::format("{} element{}", count, count == 1 ? "" : "s");
}

/// Every axis of the result moves along nothing.
std::vector<ViewAxis> still(const Shape& to) { return std::vector<ViewAxis>(to.rank()); }
ViewAxis along(unsigned axis, bool unit = true, bool whole = true) {
  return {static_cast<std::int8_t>(axis), unit, whole};
}

constexpr std::int64_t kOneByTwelve[] = {1, 12}, kReversed[] = {1, 0}, kStart[] = {0, 1}, kStep[] = {1, 2},
                       kCounts[] = {2, 2}, kStretched[] = {3, 4};

}  // namespace

// ---- reshape

TensorType Reshape::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const std::int64_t count = check_shape(name(call.op), call.wanted.shape, x.dtype, call.where);
  if (count != element_count(x.shape))
    call.fail<ShapeError>(1006, "ShapeError",
                          fmt::format("{} has {}", to_string(call.wanted.shape), count_note(call.wanted.shape)),
                          {count_note(x.shape)});
  return {x.dtype, call.wanted.shape};
}

bool Reshape::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t&) const {
  const auto moved = reshape_strides(sizes, strides, to);
  if (!moved) return false;
  sizes = to, strides = *moved;
  return true;
}

std::optional<std::vector<ViewAxis>> Reshape::view_axes(const Shape&, const Shape&) const { return std::nullopt; }

Example<Reshape> Reshape::example() { return {{{DType::f32, Shape{3, 4}}}, {.shape = {kOneByTwelve}}}; }

// ---- expand_dims

TensorType ExpandDims::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const std::uint64_t mask = axes.value;
  const auto rank = x.shape.rank() + static_cast<unsigned>(std::popcount(mask));
  if (rank > kMaxRank) call.fail<ShapeError>(1003, "ShapeError", fmt::format("{} axes, more than {}", rank, kMaxRank));
  if (mask >> rank != 0)
    call.fail<IndexError>(1201, "IndexError",
                          fmt::format("new axis {} is out of range for {} axes", std::bit_width(mask) - 1, rank));
  Shape shape;
  std::size_t next = 0;
  for (unsigned axis = 0; axis < rank; ++axis) shape.push_back(is_new(axis) ? 1 : x.shape[next++]);
  return {x.dtype, shape};
}

void ExpandDims::relate(EqualAxes& equal) const {
  for (unsigned i = 0, from = 0; i < equal.rank(); ++i)
    is_new(i) ? equal.join({EqualAxes::kResult, i}, {EqualAxes::kOne, 0}) : equal.result(i, 0, from++);
}

bool ExpandDims::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t&) const {
  Shape out;
  for (unsigned i = 0, from = 0; i < to.rank(); ++i) out.push_back(is_new(i) ? 0 : strides[from++]);
  sizes = to, strides = out;
  return true;
}

std::optional<std::vector<ViewAxis>> ExpandDims::view_axes(const Shape& to, const Shape&) const {
  std::vector<ViewAxis> moves = still(to);
  for (unsigned i = 0, from = 0; i < to.rank(); ++i)
    if (!is_new(i)) moves[i] = along(from++);
  return moves;
}

Example<ExpandDims> ExpandDims::example() { return {{{DType::f32, Shape{3, 4}}}, {.axes = {1}}}; }

// ---- squeeze

TensorType Squeeze::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const std::uint64_t mask = axes.value;
  if (mask >> x.shape.rank() != 0)
    normalize_axis(name(call.op), static_cast<std::int64_t>(std::bit_width(mask)) - 1, x, call.where);
  Shape shape;
  for (unsigned axis = 0; axis < x.shape.rank(); ++axis) {
    if (!is_gone(axis))
      shape.push_back(x.shape[axis]);
    else if (x.shape[axis] != 1)
      call.fail<ShapeError>(1014, "ShapeError", fmt::format("axis {} has size {}, not 1", axis, x.shape[axis]));
  }
  return {x.dtype, shape};
}

void Squeeze::relate(EqualAxes& equal) const {
  for (unsigned i = 0, to = 0; i < equal.rank_of(0); ++i)
    is_gone(i) ? equal.join({0, i}, {EqualAxes::kOne, 0}) : equal.result(to++, 0, i);
}

bool Squeeze::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t&) const {
  Shape out;
  for (unsigned i = 0; i < sizes.rank(); ++i)
    if (!is_gone(i)) out.push_back(strides[i]);
  sizes = to, strides = out;
  return true;
}

std::optional<std::vector<ViewAxis>> Squeeze::view_axes(const Shape& to, const Shape& x) const {
  std::vector<ViewAxis> moves = still(to);
  for (unsigned i = 0, at = 0; i < x.rank(); ++i)
    if (!is_gone(i)) moves[at++] = along(i);
  return moves;
}

Example<Squeeze> Squeeze::example() { return {{{DType::f32, Shape{1, 1, 4}}}, {.axes = {1}}}; }

// ---- permute

TensorType Permute::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  Shape shape;
  unsigned seen = 0;
  for (const std::int64_t axis : axes.value) {
    if (axis < 0 || axis >= x.shape.rank()) break;
    seen |= 1u << axis;
    if (shape.rank() < kMaxRank) shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
  }
  if (axes.value.size() != x.shape.rank() || seen + 1u != 1u << x.shape.rank())
    call.fail<ValueError>(1302, "ValueError",
                          fmt::format("{} is not a permutation of the axes", to_string(axes.value)));
  return {x.dtype, shape};
}

void Permute::relate(EqualAxes& equal) const {
  for (unsigned i = 0; i < equal.rank(); ++i) equal.result(i, 0, static_cast<unsigned>(axes.value[i]));
}

bool Permute::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t&) const {
  Shape out;
  for (const std::int64_t from : axes.value) out.push_back(strides[static_cast<std::size_t>(from)]);
  sizes = to, strides = out;
  return true;
}

std::optional<std::vector<ViewAxis>> Permute::view_axes(const Shape& to, const Shape&) const {
  std::vector<ViewAxis> moves = still(to);
  for (unsigned i = 0; i < to.rank(); ++i) moves[i] = along(static_cast<unsigned>(axes.value[i]));
  return moves;
}

Example<Permute> Permute::example() { return {{{DType::f32, Shape{3, 4}}}, {.axes = {kReversed}}}; }

/// The stride of an axis that moves by `step` elements of another one. An axis of one element may be given any step,
/// also one that has no product with a stride or a number of bytes; it is never taken.
static std::int64_t steps_of(std::int64_t stride, std::int64_t step, std::int64_t size) {
  return size > 1 ? stride * step : stride;
}

// ---- slice

TensorType Slice::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const std::size_t rank = x.shape.rank();
  if (this->start.value.size() != rank || call.wanted.shape.rank() != rank)
    call.fail<ValueError>(1305, "ValueError", "needs a start, a step and a count for every axis");
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t start = this->start.value[axis], step = this->step.value[axis];
    const std::int64_t count = call.wanted.shape[axis], size = x.shape[axis];
    if (step == 0) call.fail<ValueError>(1303, "ValueError", fmt::format("the step along axis {} is 0", axis));
    if (count == 0) continue;
    std::int64_t last = 0;
    const bool overflow =
        count < 0 || __builtin_mul_overflow(count - 1, step, &last) || __builtin_add_overflow(last, start, &last);
    if (overflow || start < 0 || start >= size || last < 0 || last >= size)
      call.fail<IndexError>(1203, "IndexError",
                            fmt::format("{} elements from {} by {} exceed axis {}", count, start, step, axis),
                            {fmt::format("axis {} is {}", axis, size)});
  }
  return {x.dtype, call.wanted.shape};
}

bool Slice::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const {
  Shape out;
  for (unsigned i = 0; i < to.rank(); ++i) {
    offset += to[i] == 0 ? 0 : start.value[i] * strides[i];
    out.push_back(steps_of(strides[i], step.value[i], to[i]));
  }
  sizes = to, strides = out;
  return true;
}

std::optional<std::vector<ViewAxis>> Slice::view_axes(const Shape& to, const Shape&) const {
  std::vector<ViewAxis> moves = still(to);
  for (unsigned i = 0; i < to.rank(); ++i) moves[i] = along(i, step.value[i] == 1, false);
  return moves;
}

Example<Slice> Slice::example() {
  return {{{DType::f32, Shape{4, 6}}}, {.start = {kStart}, .step = {kStep}, .counts = {kCounts}}};
}

// ---- broadcast_to

TensorType BroadcastTo::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  check_shape(name(call.op), call.wanted.shape, x.dtype, call.where);
  const auto common = broadcast_shapes(x.shape, call.wanted.shape);
  if (!common || *common != call.wanted.shape)
    call.fail<ShapeError>(1007, "ShapeError", fmt::format("cannot stretch to {}", to_string(call.wanted.shape)));
  return {x.dtype, call.wanted.shape};
}

bool BroadcastTo::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t&) const {
  apply_stretch(to, sizes, strides);
  return true;
}

std::optional<std::vector<ViewAxis>> BroadcastTo::view_axes(const Shape& to, const Shape& x) const {
  std::vector<ViewAxis> moves = still(to);
  const unsigned lead = to.rank() - x.rank();
  for (unsigned i = lead; i < to.rank(); ++i)
    if (x[i - lead] == to[i]) moves[i] = along(i - lead);
  return moves;
}

Example<BroadcastTo> BroadcastTo::example() { return {{{DType::f32, Shape{1, 4}}}, {.shape = {kStretched}}}; }

// ---- unfold

TensorType Unfold::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const unsigned axis = call.axis(this->axis.value, x);
  call.require_positive(this->size.value, "the size of a window"), call.require_positive(step.value, "the step"),
      call.require_positive(dilation.value, "the dilation");
  const std::int64_t size = this->size.value;
  Shape shape = x.shape;
  if (shape.rank() == kMaxRank)
    call.fail<ShapeError>(1003, "ShapeError", fmt::format("{} axes, more than {}", kMaxRank + 1, kMaxRank));
  // Sizes beyond the axis fit no window; the product of two of them might overflow.
  const bool beyond = size > x.shape[axis] || dilation.value > std::max<std::int64_t>(x.shape[axis], 1);
  const std::int64_t count = beyond && size > 1 ? 0 : window_count(x.shape[axis], size, step.value, dilation.value);
  if (count < 1)
    call.fail<ShapeError>(
        1073, "ShapeError",
        fmt::format("a window of {} elements, {} apart, does not fit axis {}", size, dilation.value, axis),
        {fmt::format("axis {} is {}", axis, x.shape[axis])});
  shape[axis] = count;
  shape.push_back(size);
  return call.result(x.dtype, shape);
}

bool Unfold::apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t&) const {
  const auto at = static_cast<std::size_t>(axis.value);
  const std::int64_t stride = strides[at];
  strides[at] = steps_of(stride, step.value, to[at]);
  strides.push_back(steps_of(stride, dilation.value, to.back()));
  sizes = to;
  return true;
}

std::optional<std::vector<ViewAxis>> Unfold::view_axes(const Shape& to, const Shape& x) const {
  const auto at = static_cast<unsigned>(axis.value);
  std::vector<ViewAxis> moves = still(to);
  for (unsigned i = 0; i < x.rank(); ++i) moves[i] = along(i);
  // Two axes of the windows move along one of the operand.
  moves[at] = along(at, step.value == 1, false);
  moves[x.rank()] = along(at, dilation.value == 1, false);
  return moves;
}

Example<Unfold> Unfold::example() {
  return {{{DType::f32, Shape{6, 6}}}, {.axis = {0}, .size = {2}, .step = {1}, .dilation = {1}}};
}

}  // namespace fermata::ops

namespace fermata {

Shape resolve_reshape(std::span<const std::int64_t> sizes, const TensorType& operand, std::source_location where) {
  const InferCall call{Op::reshape, {&operand, 1}, {}, operand, where};
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open == sizes.end() || sizes.size() > kMaxRank) {
    check_shape(name(Op::reshape), sizes, operand.dtype, where);
    return Shape(sizes);
  }
  if (std::find(open + 1, sizes.end(), -1) != sizes.end())
    call.fail<ValueError>(1304, "ValueError", fmt::format("more than one -1 in {}", to_string(sizes)));
  Shape shape(sizes);
  std::int64_t& left_over = shape[static_cast<std::size_t>(open - sizes.begin())];
  left_over = 1;
  const std::int64_t known = check_shape(name(Op::reshape), shape, operand.dtype, where);
  const std::int64_t count = element_count(operand.shape);
  if (known == 0 || count % known != 0)
    call.fail<ShapeError>(1006, "ShapeError", fmt::format("the -1 in {} cannot be inferred", to_string(sizes)),
                          {ops::count_note(operand.shape)});
  left_over = count / known;
  return shape;
}

}  // namespace fermata
