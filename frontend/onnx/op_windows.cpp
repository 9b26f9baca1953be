// Convolutions and pools.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "fermata/convolution.h"
#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/reductions.h"
#include "fermata/resampling.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/operators.h"
#include "frontend/onnx/windows.h"

namespace fermata::onnx {

using Integers = std::vector<std::int64_t>;

WindowSizes window_sizes(const NodeCall& c, const Shape& x, Integers kernel, bool ceil_mode) {
  const std::size_t axes = kernel.size();
  if (axes + 2 != x.rank() || axes == 0) c.fail("the kernel does not match the input");
  WindowSizes w{std::move(kernel),
                c.attr_integers("strides", Integers(axes, 1)),
                c.attr_integers("dilations", Integers(axes, 1)),
                {},
                {},
                {}};
  const Integers pads = c.attr_integers("pads", Integers(2 * axes, 0));
  const std::string automatic = c.attr("auto_pad", "NOTSET");
  if (w.strides.size() != axes || w.dilations.size() != axes || pads.size() != 2 * axes)
    c.fail("strides, pads or dilations do not match the spatial axes");
  for (std::size_t i = 0; i < axes; ++i) {
    check_number(c, w.strides[i], 1), check_number(c, w.dilations[i], 1), check_number(c, w.kernel[i], 1);
    check_number(c, pads[i], -(std::int64_t{1} << 40)), check_number(c, pads[axes + i], -(std::int64_t{1} << 40));
    if (w.dilations[i] > 1 && w.kernel[i] > std::int64_t{1} << 20) c.fail("the dilated kernel is too large");
    const std::int64_t size = x[i + 2], reach = w.dilations[i] * (w.kernel[i] - 1) + 1, stride = w.strides[i];
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const std::int64_t places = (size + stride - 1) / stride;
      const std::int64_t total = std::max<std::int64_t>((places - 1) * stride + reach - size, 0);
      w.before.push_back(automatic == "SAME_UPPER" ? total / 2 : total - total / 2);
      w.after.push_back(total - w.before[i]);
    } else {
      w.before.push_back(automatic == "VALID" ? 0 : pads[i]);
      w.after.push_back(automatic == "VALID" ? 0 : pads[axes + i]);
    }
    const std::int64_t room = size + w.before[i] + w.after[i] - reach;
    std::int64_t places = room < 0 ? 0 : room / stride + 1;
    if (ceil_mode && room >= 0) {
      places = (room + stride - 1) / stride + 1;
      if ((places - 1) * stride >= size + w.before[i]) --places;  // a window starts among the elements or before them
      w.after[i] = std::max(w.after[i], (places - 1) * stride + reach - size - w.before[i]);
    }
    w.places.push_back(places);
  }
  return w;
}

Tensor padded(const NodeCall& c, const Tensor& x, const WindowSizes& w, Scalar value) {
  Integers around;
  bool any = false;
  for (std::size_t i = w.axes(); i-- > 0;) {
    around.push_back(w.before[i]), around.push_back(w.after[i]);
    any = any || w.before[i] != 0 || w.after[i] != 0;
  }
  return any ? pad(x, around, PadMode::constant, value, c.where) : x;
}

Tensor windows_of(const NodeCall& c, const Tensor& x, const WindowSizes& w) {
  Tensor all = x;
  for (std::size_t i = 0; i < w.axes(); ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    all = unfold(all, axis, w.kernel[i], w.strides[i], w.dilations[i], c.where);
    all = slice(all, axis, 0, w.places[i], 1, c.where);
  }
  return all;
}

Tensor convolved(const NodeCall& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Shape filter = weight.shape();
  Integers kernel(filter.begin() + std::min(2u, filter.rank()), filter.end());
  const WindowSizes w = window_sizes(c, x.shape(), kernel, false);
  const std::int64_t groups = c.attr("group", std::int64_t{1});
  const Tensor source = w.is_symmetric() ? x : padded(c, x, w);
  const Shape around(std::span<const std::int64_t>(w.is_symmetric() ? w.before : Integers(w.axes(), 0)));
  switch (w.axes()) {
    case 1: return conv1d(source, weight, bias, w.strides, Padding(around), w.dilations, groups, c.where);
    case 2: return conv2d(source, weight, bias, w.strides, Padding(around), w.dilations, groups, c.where);
    case 3: return conv3d(source, weight, bias, w.strides, Padding(around), w.dilations, groups, c.where);
    default: c.refuse("more than three spatial axes are not supported");
  }
}

namespace {

void conv_op(NodeCall& c) { c.give(convolved(c, c.in(0), c.in(1), c.optional(2))); }

/// Every channel with a filter of its own, over what came before: that is the state.
void causal_conv_op(NodeCall& c) {
  const Tensor x = c.in(0), weight = c.in(1), bias = c.optional(2);
  const std::string activation = c.attr("activation", "none");
  if (x.rank() != 3 || weight.rank() != 3) c.fail("input and weights must have rank 3");
  const std::int64_t channels = x.size(1), before = weight.size(2) - 1;
  if (weight.size(0) != channels || weight.size(1) != 1 || before < 0) c.fail("the weights have the wrong shape");
  if (activation != "none" && activation != "silu" && activation != "swish")
    c.refuse("activation '" + activation + "' is not supported");
  const Tensor past = c.has(3) ? c.in(3) : zeros({x.size(0), channels, before}, x.dtype());
  const Tensor all = before == 0 ? x : concat({past, x}, 2, c.where);
  const Tensor y = conv1d(all, weight, bias, 1, 0, 1, channels, c.where);
  c.give(activation == "none" ? y : y * sigmoid(y));
  c.give(slice(all, 2, all.size(2) - before, all.size(2), 1, c.where));
}

void conv_transpose_op(NodeCall& c) {
  const Tensor x = c.in(0), weight = c.in(1), bias = c.optional(2);
  if (x.rank() < 3) c.fail("input must have rank 3 or more");
  const std::size_t axes = x.rank() - 2;
  const Integers strides = c.attr_integers("strides", Integers(axes, 1));
  const Integers dilations = c.attr_integers("dilations", Integers(axes, 1));
  const Integers extra = c.attr_integers("output_padding", Integers(axes, 0));
  const Integers wanted = c.attr_integers("output_shape");
  Integers pads = c.attr_integers("pads", Integers(2 * axes, 0));
  const std::string automatic = c.attr("auto_pad", "NOTSET");
  if (x.rank() < 3 || weight.rank() != x.rank() || strides.size() != axes || dilations.size() != axes ||
      extra.size() != axes || pads.size() != 2 * axes || (!wanted.empty() && wanted.size() < axes))
    c.fail("strides, pads or dilations do not match the spatial axes");
  // All that the filters reach, and then what is wanted of it.
  const Integers none(axes, 0);
  const std::int64_t groups = c.attr("group", std::int64_t{1});
  Tensor y;
  switch (axes) {
    case 1: y = conv_transpose1d(x, weight, bias, strides, none, none, groups, dilations, c.where); break;
    case 2: y = conv_transpose2d(x, weight, bias, strides, none, none, groups, dilations, c.where); break;
    case 3: y = conv_transpose3d(x, weight, bias, strides, none, none, groups, dilations, c.where); break;
    default: c.refuse("more than three spatial axes are not supported");
  }
  Integers around;
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t full = y.size(static_cast<std::int64_t>(i) + 2);
    std::int64_t size = full + extra[i] - pads[i] - pads[axes + i];
    if (!wanted.empty() || automatic.starts_with("SAME")) {
      size = wanted.empty() ? x.size(static_cast<std::int64_t>(i) + 2) * strides[i] : wanted[wanted.size() - axes + i];
      const std::int64_t total = full + extra[i] - size;
      pads[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      if (total < 0) pads[i] = 0;
    }
    around.insert(around.begin(), {-pads[i], size + pads[i] - full});
  }
  const bool cuts = std::ranges::any_of(around, [](std::int64_t n) { return n != 0; });
  if (!cuts) return c.give(y);
  // What output_padding adds lies beyond all filters, and has the bias alone.
  if (!bias.defined() || std::ranges::none_of(around, [](std::int64_t n) { return n > 0; }))
    return c.give(pad(y, around, PadMode::constant, 0, c.where));
  Shape channel{-1};
  for (std::size_t i = 0; i < axes; ++i) channel.push_back(1);
  const Tensor shift = reshape(bias, channel, c.where);
  c.give(pad(y - shift, around, PadMode::constant, 0, c.where) + shift);
}

Scalar lowest(DType dtype) {
  switch (dtype) {
    case DType::i8: return std::numeric_limits<std::int8_t>::min();
    case DType::i16: return std::numeric_limits<std::int16_t>::min();
    case DType::i32: return std::numeric_limits<std::int32_t>::min();
    case DType::i64: return std::numeric_limits<std::int64_t>::min();
    default: return is_floating(dtype) ? Scalar(-std::numeric_limits<double>::infinity()) : Scalar(0);
  }
}
Integers last_axes(std::size_t count) {
  Integers axes;
  for (std::size_t i = 0; i < count; ++i)
    axes.push_back(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(count));
  return axes;
}
bool fits_own_pools(const WindowSizes& w) {
  if (!w.is_symmetric() || w.axes() > 3) return false;
  for (std::size_t i = 0; i < w.axes(); ++i)
    if (w.before[i] * 2 > w.kernel[i] || w.places[i] == 0) return false;
  return true;
}

/// Position of the largest element of each window among all elements of x, in row-major order or with the last two axes
/// exchanged.
Tensor largest_places(const NodeCall& c, const Tensor& x, const Tensor& windows, const WindowSizes& w) {
  const std::int64_t images = x.size(0) * x.size(1);
  std::int64_t area = 1;
  for (std::size_t i = 0; i < w.axes(); ++i) area *= x.size(static_cast<std::int64_t>(i) + 2);
  Shape flat = windows.shape(), spatial{1, 1};
  std::int64_t elements = 1;
  for (const std::int64_t k : w.kernel) elements *= k;
  flat = Shape(std::span<const std::int64_t>(flat.begin(), 2 + w.axes()));
  flat.push_back(elements);
  for (std::size_t i = 0; i < w.axes(); ++i) spatial.push_back(x.size(static_cast<std::int64_t>(i) + 2));
  Tensor numbers = reshape(arange(area), spatial, c.where);
  if (c.attr("storage_order", std::int64_t{0}) != 0 && w.axes() >= 2) {
    Shape exchanged = spatial;
    std::swap(exchanged[spatial.rank() - 1], exchanged[spatial.rank() - 2]);
    numbers = transpose(reshape(arange(area), exchanged, c.where), -2, -1, c.where);
  }
  const Tensor places = windows_of(c, padded(c, numbers, w), w);
  const Tensor best = argmax(reshape(windows, flat, c.where), -1, true, c.where);
  Shape one = flat;
  one[0] = one[1] = 1;
  const Tensor wide = broadcast_to(reshape(places, one, c.where), flat, c.where);
  const Tensor image = reshape(arange(images) * area, {x.size(0), x.size(1)}, c.where);
  Tensor base = image;
  for (std::size_t i = 0; i < w.axes(); ++i) base = expand_dims(base, -1, c.where);
  return squeeze(gather(wide, best, -1, c.where), -1, c.where) + base;
}

void max_pool_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const WindowSizes w =
      window_sizes(c, x.shape(), c.attr_integers("kernel_shape"), c.attr("ceil_mode", std::int64_t{0}) != 0);
  if (!c.wants(1) && fits_own_pools(w) && is_floating(x.dtype())) {
    switch (w.axes()) {
      case 1: return c.give(max_pool1d(x, w.kernel, w.strides, w.before, w.dilations, false, c.where));
      case 2: return c.give(max_pool2d(x, w.kernel, w.strides, w.before, w.dilations, false, c.where));
      default: return c.give(max_pool3d(x, w.kernel, w.strides, w.before, w.dilations, false, c.where));
    }
  }
  const Tensor windows = windows_of(c, padded(c, x, w, lowest(x.dtype())), w);
  c.give(max(windows, last_axes(w.axes()), false, c.where));
  if (c.wants(1)) c.give(largest_places(c, x, windows, w));
}

/// How many elements of each window count, along each axis: a product of vectors.
Tensor counts_of(const NodeCall& c, const Shape& x, const WindowSizes& w, bool pads_count) {
  const Integers pads = c.attr_integers("pads", Integers(2 * w.axes(), 0));
  const bool is_automatic = c.attr("auto_pad", "NOTSET") != "NOTSET";
  Tensor counts;
  for (std::size_t i = 0; i < w.axes(); ++i) {
    const std::int64_t size = x[i + 2];
    const std::int64_t low = pads_count ? -w.before[i] : 0;
    const std::int64_t high = size + (!pads_count ? 0 : is_automatic ? w.after[i] : pads[w.axes() + i]);
    std::vector<double> along;
    if (w.places[i] > (1 << 20) || w.kernel[i] > (1 << 20) || w.places[i] * w.kernel[i] > (1 << 28))
      c.refuse("padding around so many windows is not supported");
    for (std::int64_t p = 0; p < w.places[i]; ++p) {
      std::int64_t count = 0;
      for (std::int64_t k = 0; k < w.kernel[i]; ++k) {
        const std::int64_t at = p * w.strides[i] - w.before[i] + k * w.dilations[i];
        count += at >= low && at < high ? 1 : 0;
      }
      along.push_back(static_cast<double>(count));
    }
    Shape sizes;
    for (std::size_t j = 0; j < w.axes(); ++j) sizes.push_back(j == i ? w.places[i] : 1);
    const AtOnce guard;
    const Tensor vector = astype(tensor(along, sizes), DType::f32);
    counts = counts.defined() ? counts * vector : vector;
  }
  return counts;
}

void average_pool_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const bool ceil_mode = c.attr("ceil_mode", std::int64_t{0}) != 0;
  const bool pads_count = c.attr("count_include_pad", std::int64_t{0}) != 0;
  const WindowSizes w = window_sizes(c, x.shape(), c.attr_integers("kernel_shape"), ceil_mode);
  const bool is_dilated = std::ranges::any_of(w.dilations, [](std::int64_t d) { return d != 1; });
  if (fits_own_pools(w) && !ceil_mode && !is_dilated) {
    switch (w.axes()) {
      case 1: return c.give(avg_pool1d(x, w.kernel, w.strides, w.before, false, pads_count, {}, c.where));
      case 2: return c.give(avg_pool2d(x, w.kernel, w.strides, w.before, false, pads_count, {}, c.where));
      default: return c.give(avg_pool3d(x, w.kernel, w.strides, w.before, false, pads_count, {}, c.where));
    }
  }
  const Tensor sums = sum(windows_of(c, padded(c, x, w), w), last_axes(w.axes()), false, c.where);
  const Tensor counts = astype(counts_of(c, x.shape(), w, pads_count), sums.dtype(), c.where);
  c.give(astype(sums / counts, x.dtype(), c.where));
}

void lp_pool_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const double p = static_cast<double>(c.attr("p", std::int64_t{2}));
  const WindowSizes w =
      window_sizes(c, x.shape(), c.attr_integers("kernel_shape"), c.attr("ceil_mode", std::int64_t{0}) != 0);
  const Tensor powers = windows_of(c, padded(c, pow(abs(x), p), w), w);
  c.give(pow(sum(powers, last_axes(w.axes()), false, c.where), 1 / p));
}

Integers spatial_axes(const Tensor& x) {
  Integers axes(x.rank() > 2 ? x.rank() - 2 : 0);
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}
void global_average_pool(NodeCall& c) { c.give(mean(c.in(0), spatial_axes(c.in(0)), true, c.where)); }
void global_max_pool(NodeCall& c) { c.give(max(c.in(0), spatial_axes(c.in(0)), true, c.where)); }
void global_lp_pool(NodeCall& c) {
  const double p = static_cast<double>(c.attr("p", std::int64_t{2}));
  c.give(pow(sum(pow(abs(c.in(0)), p), spatial_axes(c.in(0)), true, c.where), 1 / p));
}

void col2im_op(NodeCall& c) {
  const Tensor columns = c.in(0);
  const Integers image = c.integers(1), block = c.integers(2);
  const std::size_t axes = image.size();
  const Integers strides = c.attr_integers("strides", Integers(axes, 1));
  const Integers dilations = c.attr_integers("dilations", Integers(axes, 1));
  const Integers pads = c.attr_integers("pads", Integers(2 * axes, 0));
  if (block.size() != axes || columns.rank() != 3 || pads.size() != 2 * axes || strides.size() != axes ||
      dilations.size() != axes || axes == 0)
    c.fail("sizes do not match the number of axes");
  std::int64_t area = 1;
  Integers places;
  for (std::size_t i = 0; i < axes; ++i) {
    check_number(c, block[i], 1), check_number(c, image[i], 1);
    check_number(c, strides[i], 1), check_number(c, dilations[i], 1);
    check_number(c, pads[i], 0), check_number(c, pads[axes + i], 0);
    if (block[i] > columns.size(1) / area) c.fail("the blocks are larger than the input");
    area *= block[i];
    places.push_back((image[i] + pads[i] + pads[axes + i] - dilations[i] * (block[i] - 1) - 1) / strides[i] + 1);
  }
  Shape sizes{columns.size(0), columns.size(1) / area};
  for (const std::int64_t k : block) sizes.push_back(k);
  for (const std::int64_t n : places) sizes.push_back(n);
  Tensor y = reshape(columns, sizes, c.where);
  for (std::size_t i = axes; i-- > 0;) {
    // [N, C, k0 .. ki, n0 .. ni, ..]: windows along ni, and their elements as a last axis.
    const auto last = static_cast<std::int64_t>(y.rank()) - 1, n = static_cast<std::int64_t>(2 + 2 * i);
    y = moveaxis(y, static_cast<std::int64_t>(2 + i), last, c.where);
    y = fold(y, n, image[i] + pads[i] + pads[axes + i], strides[i], dilations[i], c.where);
    y = slice(y, n, pads[i], pads[i] + image[i], 1, c.where);
  }
  c.give(y);
}

constexpr std::array kRows{
    OperatorRow{"AveragePool", &average_pool_op},
    OperatorRow{"CausalConvWithState", &causal_conv_op},
    OperatorRow{"Col2Im", &col2im_op, {}, 0b110},
    OperatorRow{"Conv", &conv_op, "one to three spatial axes"},
    OperatorRow{"ConvTranspose", &conv_transpose_op, "one to three spatial axes"},
    OperatorRow{"GlobalAveragePool", &global_average_pool},
    OperatorRow{"GlobalLpPool", &global_lp_pool},
    OperatorRow{"GlobalMaxPool", &global_max_pool},
    OperatorRow{"LpPool", &lp_pool_op},
    OperatorRow{"MaxPool", &max_pool_op},
};

}  // namespace

Rows window_rows() { return kRows; }

}  // namespace fermata::onnx
