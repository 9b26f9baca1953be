// Shapes, and elements in other places: no element is computed.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/resampling.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

using Integers = std::vector<std::int64_t>;

/// Of sizes alone: known, whatever the operand is.
Value known(const Integers& values, const IntegerList& sizes) {
  const AtOnce guard;
  return Value(tensor(values, sizes), true);
}

void shape_op(NodeCall& c) {
  const Shape shape = c.in(0).shape();
  const auto rank = static_cast<std::int64_t>(shape.rank());
  const auto place = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const std::int64_t start = place(c.attr("start", std::int64_t{0})), end = place(c.attr("end", rank));
  Integers sizes;
  for (std::int64_t i = start; i < end; ++i) sizes.push_back(shape[static_cast<std::size_t>(i)]);
  c.give(known(sizes, std::ssize(sizes)));
}
void size_op(NodeCall& c) { c.give(known({c.in(0).element_count()}, {})); }

void reshape_op(NodeCall& c) {
  const Tensor x = c.in(0);
  Integers sizes = c.list("shape", 1).value_or(Integers());
  const bool zero_is_zero = c.attr("allowzero", std::int64_t{0}) != 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 0 || zero_is_zero) continue;
    if (i >= x.rank()) c.fail("shape has a 0 beyond the rank of the input");
    sizes[i] = x.size(static_cast<std::int64_t>(i));
  }
  c.give(reshape(x, sizes, c.where));
}
void flatten_op(NodeCall& c) {
  const Tensor x = c.in(0);
  std::int64_t axis = c.attr("axis", std::int64_t{1});
  if (axis < 0) axis += static_cast<std::int64_t>(x.rank());
  if (axis < 0 || axis > static_cast<std::int64_t>(x.rank())) c.fail("axis is out of range");
  std::int64_t rows = 1, columns = 1;
  for (unsigned i = 0; i < x.rank(); ++i) (i < axis ? rows : columns) *= x.shape()[i];
  c.give(reshape(x, {rows, columns}, c.where));
}
void squeeze_op(NodeCall& c) {
  const auto axes = c.list("axes", 1);
  if (axes && axes->empty()) return c.give(c.in(0));
  c.give(squeeze(c.in(0), axes.value_or(Integers()), c.where));
}
void unsqueeze_op(NodeCall& c) { c.give(expand_dims(c.in(0), c.list("axes", 1).value_or(Integers()), c.where)); }
void transpose_op(NodeCall& c) {
  const Tensor x = c.in(0);
  Integers order = c.attr_integers("perm");
  if (order.empty())
    for (unsigned i = x.rank(); i-- > 0;) order.push_back(i);
  c.give(permute(x, order, c.where));
}
void expand_op(NodeCall& c) {
  const Tensor x = c.in(0);
  Integers wanted = c.integers(1);
  Shape sizes = x.shape();
  while (sizes.rank() < wanted.size() && sizes.rank() < 16) {
    Shape more{1};
    for (const std::int64_t s : sizes) more.push_back(s);
    sizes = more;
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(wanted.size(), sizes.rank()); ++i) {
    std::int64_t& size = sizes[sizes.rank() - 1 - i];
    if (const std::int64_t other = wanted[wanted.size() - 1 - i]; size == 1) size = other;
  }
  c.will_make(sizes);
  const Tensor wide = broadcast_to(x, sizes, c.where);
  c.give(wide);
}

void concat_op(NodeCall& c) {
  std::vector<Tensor> parts;
  for (std::size_t k = 0; k < c.input_count(); ++k) parts.push_back(c.in(k));
  c.give(concat(parts, c.attr("axis", std::int64_t{0}), c.where));
}

/// Sizes of the parts: given, or as even as they can be, the last one smaller.
Integers part_sizes(const NodeCall& c, std::int64_t size, std::size_t outputs) {
  if (const auto given = c.list("split", 1)) return *given;
  const auto parts = static_cast<std::int64_t>(outputs);
  if (parts < 1 || c.attr("num_outputs", parts) != parts)
    c.fail("the number of outputs differs from the number of splits");
  const std::int64_t each = (size + parts - 1) / parts;
  Integers sizes;
  for (std::int64_t i = 0; i < parts; ++i) sizes.push_back(std::clamp<std::int64_t>(size - i * each, 0, each));
  return sizes;
}
void split_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{0}), x.rank());
  for (Tensor& part : split(x, part_sizes(c, x.size(axis), c.output_count()), axis, c.where)) c.give(std::move(part));
}

void slice_op(NodeCall& c) {
  Tensor x = c.in(0);
  const auto starts = c.list("starts", 1), ends = c.list("ends", 2), axes = c.list("axes", 3);
  const auto steps = c.has(4) ? c.integers(4) : Integers();
  if (!starts || !ends || starts->size() != ends->size()) c.fail("starts and ends have different lengths");
  for (std::size_t i = 0; i < starts->size(); ++i) {
    if (axes && i >= axes->size()) c.fail("axes is shorter than starts");
    const std::int64_t axis = axis_of(c, axes ? (*axes)[i] : static_cast<std::int64_t>(i), x.rank());
    const std::int64_t step = i < steps.size() ? steps[i] : 1;
    const std::int64_t size = x.size(axis);
    std::int64_t start = (*starts)[i], end = (*ends)[i];
    // What lies before the first element after counting from the end is clamped, and not counted from the end again.
    if (start < 0) start = std::max<std::int64_t>(start, -size - 1) + size;
    if (step > 0) {
      start = std::clamp<std::int64_t>(start, 0, size);
      end = std::clamp<std::int64_t>(end < 0 ? std::max<std::int64_t>(end, -size) + size : end, 0, size);
      x = slice(x, axis, start, std::max(start, end), step, c.where);
      continue;
    }
    start = std::min(start, size - 1);
    if (end < 0) end = std::max<std::int64_t>(end, -size - 1) + size;
    if (start <= end || start < 0)
      x = slice(x, axis, 0, 0, 1, c.where);
    else
      x = slice(x, axis, start, end < 0 ? kNone : end, step, c.where);
  }
  c.give(x);
}

void tile_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const Integers repeats = c.integers(1);
  Shape sizes = x.shape();
  for (std::size_t i = 0; i < sizes.rank() && i < repeats.size(); ++i) {
    check_number(c, repeats[i], 0);
    if (sizes[i] != 0 && repeats[i] > (std::int64_t{1} << 40) / sizes[i]) c.fail("an output dimension is too large");
    sizes[i] *= repeats[i];
  }
  c.will_make(sizes);
  c.give(tile(x, repeats, c.where));
}

void pad_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const Integers pads = c.list("pads", 1).value_or(Integers());
  Integers axes;
  if (c.has(3)) {
    axes = c.integers(3);
  } else {
    axes.resize(x.rank());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (pads.size() != 2 * axes.size()) c.fail("pads must hold two values for each axis");
  // Of the last axis first.
  Integers around(2 * std::size_t{x.rank()}, 0);
  Shape sizes = x.shape();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axis_of(c, axes[i], x.rank()));
    const std::size_t from_last = x.rank() - 1 - axis;
    for (const std::int64_t p : {pads[i], pads[axes.size() + i]}) check_number(c, p, -(std::int64_t{1} << 40));
    around[2 * from_last] = pads[i], around[2 * from_last + 1] = pads[axes.size() + i];
    sizes[axis] += std::max<std::int64_t>(pads[i] + pads[axes.size() + i], 0);
  }
  c.will_make(sizes);
  const std::string mode = c.attr("mode", "constant");
  if (mode == "constant") {
    Scalar value = c.attr("value", 0.0);
    if (c.has(2)) {
      const Tensor number = c.value(2).tensor();
      value = is_floating(number.dtype())        ? Scalar(c.number(2))
              : number.dtype() == DType::boolean ? Scalar(c.integer(2) != 0)
                                                 : Scalar(c.integer(2));
    } else if (!is_floating(x.dtype())) {
      value = Scalar(static_cast<std::int64_t>(c.attr("value", 0.0)));
    }
    return c.give(pad(x, around, PadMode::constant, value, c.where));
  }
  const PadMode how = mode == "reflect" ? PadMode::reflect : mode == "edge" ? PadMode::replicate : PadMode::circular;
  if (mode != "reflect" && mode != "edge" && mode != "wrap") c.refuse("mode '" + mode + "' is not supported");
  c.give(pad(x, around, how, 0, c.where));
}

void depth_to_space(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t b = c.attr("blocksize", std::int64_t{1});
  if (x.rank() != 4 || b < 1 || b > (1 << 16)) c.fail("input must have rank 4, and blocksize be positive");
  const std::int64_t n = x.size(0), depth = x.size(1) / (b * b), h = x.size(2), w = x.size(3);
  const bool by_columns = c.attr("mode", "DCR") == "CRD";
  const Tensor blocks = by_columns ? permute(reshape(x, {n, depth, b, b, h, w}, c.where), {0, 1, 4, 2, 5, 3}, c.where)
                                   : permute(reshape(x, {n, b, b, depth, h, w}, c.where), {0, 3, 4, 1, 5, 2}, c.where);
  c.give(reshape(blocks, {n, depth, h * b, w * b}, c.where));
}
void space_to_depth(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t b = c.attr("blocksize", std::int64_t{1});
  if (x.rank() != 4 || b < 1 || b > (1 << 16)) c.fail("input must have rank 4, and blocksize be positive");
  const std::int64_t n = x.size(0), depth = x.size(1), h = x.size(2) / b, w = x.size(3) / b;
  const Tensor parts = reshape(x, {n, depth, h, b, w, b}, c.where);
  const bool by_columns = c.attr("mode", "DCR") == "CRD";
  const Tensor blocks =
      by_columns ? permute(parts, {0, 1, 3, 5, 2, 4}, c.where) : permute(parts, {0, 3, 5, 1, 2, 4}, c.where);
  c.give(reshape(blocks, {n, depth * b * b, h, w}, c.where));
}

void trilu_op(NodeCall& c) {
  const std::int64_t k = c.has(1) ? c.integer(1) : 0;
  const Tensor x = c.in(0);
  c.give(c.attr("upper", std::int64_t{1}) != 0 ? triu(x, k, c.where) : tril(x, k, c.where));
}

void reverse_sequence(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t batch = axis_of(c, c.attr("batch_axis", std::int64_t{1}), x.rank());
  const std::int64_t time = axis_of(c, c.attr("time_axis", std::int64_t{0}), x.rank());
  // Position t of a sequence of n is n - 1 - t of the other one where t < n.
  const Tensor front = moveaxis(x, {batch, time}, {0, 1}, c.where);
  const Tensor lengths = reshape(astype(c.in(1), DType::i64, c.where), {-1, 1}, c.where);
  const Tensor t = reshape(arange(front.size(1)), {1, -1}, c.where);
  Tensor places = where(t < lengths, lengths - 1 - t, t);
  Shape wide = front.shape(), narrow = front.shape();
  for (unsigned i = 2; i < narrow.rank(); ++i) narrow[i] = 1;
  places = broadcast_to(reshape(places, narrow, c.where), wide, c.where);
  c.give(moveaxis(gather(front, places, 1, c.where), {0, 1}, {batch, time}, c.where));
}

void center_crop_pad(NodeCall& c) {
  Tensor x = c.in(0);
  const Integers sizes = c.integers(1);
  Integers axes = c.attr_integers("axes");
  if (!c.has_attribute("axes"))
    for (unsigned i = 0; i < x.rank(); ++i) axes.push_back(i);
  if (sizes.size() != axes.size()) c.fail("the number of sizes differs from the number of axes");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = axis_of(c, axes[i], x.rank()), have = x.size(axis), want = sizes[i];
    if (want < 0) c.fail("the shape has a negative dimension");
    if (want <= have) {
      const std::int64_t start = (have - want) / 2;
      x = slice(x, axis, start, start + want, 1, c.where);
      continue;
    }
    Integers around(2 * (x.rank() - static_cast<std::size_t>(axis)), 0);
    around[around.size() - 2] = (want - have) / 2, around.back() = want - have - (want - have) / 2;
    x = pad(x, around, PadMode::constant, 0, c.where);
  }
  c.give(x);
}

constexpr std::array kRows{
    OperatorRow{"CenterCropPad", &center_crop_pad, {}, 0b10},
    OperatorRow{"Concat", &concat_op},
    OperatorRow{"DepthToSpace", &depth_to_space},
    OperatorRow{"Expand", &expand_op, {}, 0b10},
    OperatorRow{"Flatten", &flatten_op},
    OperatorRow{"Pad", &pad_op, {}, 0b1110},
    OperatorRow{"Reshape", &reshape_op, {}, 0b10},
    OperatorRow{"ReverseSequence", &reverse_sequence},
    OperatorRow{"Shape", &shape_op, {}, 0, false},
    OperatorRow{"Size", &size_op, {}, 0, false},
    OperatorRow{"Slice", &slice_op, {}, 0b11110},
    OperatorRow{"SpaceToDepth", &space_to_depth},
    OperatorRow{"Split", &split_op, {}, 0b10},
    OperatorRow{"Squeeze", &squeeze_op, {}, 0b10},
    OperatorRow{"Tile", &tile_op, {}, 0b10},
    OperatorRow{"Transpose", &transpose_op},
    OperatorRow{"Trilu", &trilu_op, {}, 0b10},
    OperatorRow{"Unsqueeze", &unsqueeze_op, {}, 0b10},
};

}  // namespace

Rows movement_rows() { return kRows; }

}  // namespace fermata::onnx
