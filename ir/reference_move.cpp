// Reference evaluation of the ops that move elements: views, concatenation, gathers and scatters.
#include <fmt/format.h>

#include "ir/error.h"
#include "ir/ops/control.h"
#include "ir/ops/indexing.h"
#include "ir/ops/moves.h"
#include "ir/ops/views.h"
#include "ir/reference_element.h"

namespace fermata::ops {
namespace {

/// A result of the node's type, and element copies into it from any tensor of the same dtype.
class Mover {
 public:
  explicit Mover(const GraphNode& node) : result_{node.dtype, node.shape, {}, {}} {
    const auto count = static_cast<std::size_t>(element_count(node.shape));
    if (is_complex(node.dtype))
      result_.complexes.resize(count);
    else if (keeps_floats(node.dtype))
      result_.floats.resize(count);
    else
      result_.integers.resize(count);
  }
  void copy(const ReferenceTensor& from, std::int64_t source, std::int64_t target) {
    const auto s = static_cast<std::size_t>(source), t = static_cast<std::size_t>(target);
    if (is_complex(result_.dtype))
      result_.complexes[t] = from.complexes[s];
    else if (keeps_floats(result_.dtype))
      result_.floats[t] = from.floats[s];
    else
      result_.integers[t] = from.integers[s];
  }
  ReferenceTensor take() { return std::move(result_); }

 private:
  ReferenceTensor result_;
};

/// Result element i is the operand's element at `start` plus the strides times the position.
ReferenceTensor strided_view(const GraphNode& node, const ReferenceTensor& x, std::int64_t start,
                             const Shape& strides) {
  Mover mover(node);
  Odometer position(node.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next())
    mover.copy(x, start + position.offset(strides), i);
  return mover.take();
}

ReferenceTensor permute(const GraphNode& node, const ReferenceTensor& x) {
  const Shape dense = dense_strides(x.shape);
  const auto axes = attributes_of<Permute>(node).axes.value;
  Shape strides(node.shape);
  for (unsigned axis = 0; axis < strides.rank(); ++axis) strides[axis] = dense[static_cast<std::size_t>(axes[axis])];
  return strided_view(node, x, 0, strides);
}

ReferenceTensor slice(const GraphNode& node, const ReferenceTensor& x) {
  Shape strides = dense_strides(x.shape);
  const auto op = attributes_of<Slice>(node);
  std::int64_t start = 0;
  for (std::size_t axis = 0; axis < strides.rank(); ++axis) {
    start += op.start.value[axis] * strides[axis];
    strides[axis] *= op.step.value[axis];
  }
  return strided_view(node, x, start, strides);
}

/// Sizes before, along and after an axis.
struct AxisSplit {
  std::int64_t outer = 1, size = 1, inner = 1;
};
AxisSplit split_at(const Shape& shape, std::size_t axis) {
  AxisSplit split;
  for (std::size_t i = 0; i < shape.rank(); ++i)
    (i < axis ? split.outer : i == axis ? split.size : split.inner) *= shape[i];
  return split;
}
std::size_t axis_of(std::int64_t axis, const ReferenceTensor& x) {
  return static_cast<std::size_t>(axis < 0 ? axis + x.shape.rank() : axis);
}

ReferenceTensor concat(const GraphNode& node, const std::vector<const ReferenceTensor*>& operands) {
  Mover mover(node);
  const std::size_t axis = axis_of(attributes_of<Concat>(node).axis.value, *operands[0]);
  const AxisSplit whole = split_at(node.shape, axis);
  std::int64_t before = 0;
  for (const ReferenceTensor* operand : operands) {
    const AxisSplit part = split_at(operand->shape, axis);
    const std::int64_t run = part.size * part.inner;
    for (std::int64_t outer = 0; outer < part.outer; ++outer)
      for (std::int64_t i = 0; i < run; ++i)
        mover.copy(*operand, outer * run + i, (outer * whole.size + before) * whole.inner + i);
    before += part.size;
  }
  return mover.take();
}

/// Calls f(element of x, element of the gathered tensor) for every element that take and index_add pair up.
template <class F> void for_gathered(const GraphNode& node, std::int64_t axis, const ReferenceTensor& x,
                                     const ReferenceTensor& index, F&& f) {
  const AxisSplit split = split_at(x.shape, axis_of(axis, x));
  const auto positions = static_cast<std::int64_t>(index.integers.size());
  for (std::int64_t outer = 0; outer < split.outer; ++outer)
    for (std::int64_t p = 0; p < positions; ++p) {
      const std::int64_t given = index.integers[static_cast<std::size_t>(p)];
      const std::int64_t at = given < 0 && index.dtype != DType::u64 ? given + split.size : given;
      if (at < 0 || at >= split.size)
        throw IndexError(1204, format_error(1204, "IndexError",
                                            fmt::format("{}: position {} is out of range for {} elements",
                                                        name(node.op), given, split.size),
                                            {}, node.where));
      for (std::int64_t inner = 0; inner < split.inner; ++inner)
        f((outer * split.size + at) * split.inner + inner, (outer * positions + p) * split.inner + inner);
    }
}

ReferenceTensor take(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& index) {
  Mover mover(node);
  for_gathered(node, attributes_of<Take>(node).axis.value, x, index,
               [&](std::int64_t source, std::int64_t target) { mover.copy(x, source, target); });
  return mover.take();
}

ReferenceTensor index_add(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& index,
                          const ReferenceTensor& source) {
  ReferenceTensor result = x;
  const PrimFunction add = prim_function(Prim::add, kept_dtype(x.dtype), kept_dtype(x.dtype));
  for_gathered(node, attributes_of<IndexAdd>(node).axis.value, x, index, [&](std::int64_t target, std::int64_t from) {
    const auto t = static_cast<std::size_t>(target), s = static_cast<std::size_t>(from);
    if (is_complex(x.dtype)) {
      result.complexes[t] += source.complexes[s];
      return;
    }
    if (keeps_floats(x.dtype)) {
      result.floats[t] += source.floats[s];
      return;
    }
    const std::uint64_t sum =
        add(static_cast<std::uint64_t>(result.integers[t]), static_cast<std::uint64_t>(source.integers[s]), 0);
    const std::uint64_t wrapped = convert_slot(kept_dtype(x.dtype), x.dtype, sum);
    result.integers[t] = static_cast<std::int64_t>(convert_slot(x.dtype, kept_dtype(x.dtype), wrapped));
  });
  return result;
}

ReferenceTensor update(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& values) {
  Mover mover(node);
  for (std::int64_t i = 0; i < element_count(x.shape); ++i) mover.copy(x, i, i);
  const auto op = attributes_of<Update>(node);
  const Shape strides(op.strides.value);
  Odometer position(values.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next())
    mover.copy(values, i, op.offset.value + position.offset(strides));
  return mover.take();
}

ReferenceTensor same_elements(const GraphNode& node, const ReferenceTensor& x) {
  return {node.dtype, node.shape, x.floats, x.integers, x.complexes};
}

}  // namespace

ReferenceTensor Copy::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return same_elements(node, *operands[0]);
}
ReferenceTensor After::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return same_elements(node, *operands[0]);
}
ReferenceTensor ExpandDims::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return same_elements(node, *operands[0]);
}
ReferenceTensor Squeeze::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return same_elements(node, *operands[0]);
}
ReferenceTensor Reshape::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return same_elements(node, *operands[0]);
}
ReferenceTensor Permute::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return permute(node, *operands[0]);
}
ReferenceTensor Slice::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return slice(node, *operands[0]);
}
ReferenceTensor BroadcastTo::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return strided_view(node, *operands[0], 0, stretched_strides(operands[0]->shape, node.shape));
}
ReferenceTensor Concat::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return concat(node, operands);
}
ReferenceTensor Take::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return take(node, *operands[0], *operands[1]);
}
ReferenceTensor IndexAdd::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return index_add(node, *operands[0], *operands[1], *operands[2]);
}
ReferenceTensor Update::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return update(node, *operands[0], *operands[1]);
}

}  // namespace fermata::ops
