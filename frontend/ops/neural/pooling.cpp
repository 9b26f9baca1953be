// Pools: reductions over views of windows; see fermata/pooling.h.
#include "fermata/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "frontend/ops/neural/spatial_arguments.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/convolution.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// The arguments of a pool by axis, and what ceil_mode adds at the end of each.
struct Pool {
  Pool(std::string_view function, const Tensor& given, std::size_t axes_, const IntegerList& kernel_size,
       const IntegerList& step, const IntegerList& zeros, const IntegerList& apart, bool ceil_mode, Location where)
      : axes(axes_),
        images(function, given, axes_, where),
        kernel(by_axis(function, "kernel_size", kernel_size, axes_, 1, where)),
        stride(by_axis(function, "stride", step.empty() ? kernel_size : step, axes_, 1, where)),
        padding(by_axis(function, "padding", zeros, axes_, 0, where)),
        dilation(by_axis(function, "dilation", apart, axes_, 1, where)) {
    for (std::size_t i = 0; i < axes; ++i) {
      if (2 * padding[i] > kernel[i])
        throw ValueError(1375, format_error(1375, "ValueError",
                                            fmt::format("{}: padding of {} is more than half a window of {}", function,
                                                        padding[i], kernel[i]),
                                            describe(given), where));
      beyond.push_back(ceil_mode ? beyond_end(i) : 0);
    }
  }

  /// [N, C, windows .., places ..]: the axes of a window come before those that results lie along.
  Tensor windows(const Tensor& x, Scalar around, Location where) const {
    std::vector<std::int64_t> pads, order{0, 1};
    for (std::size_t i = axes; i-- > 0;) pads.insert(pads.end(), {padding[i], padding[i] + beyond[i]});
    Tensor y = pad(x, pads, PadMode::constant, around, where);
    for (unsigned i = 0; i < axes; ++i) y = unfold(y, 2 + i, kernel[i], stride[i], dilation[i], where);
    for (std::size_t i = 0; i < axes; ++i) order.push_back(static_cast<std::int64_t>(2 + axes + i));
    for (std::size_t i = 0; i < axes; ++i) order.push_back(static_cast<std::int64_t>(2 + i));
    return permute(y, order, where);
  }
  Shape window_axes() const {
    Shape all;
    for (std::size_t i = 0; i < axes; ++i) all.push_back(static_cast<std::int64_t>(2 + i));
    return all;
  }

  std::size_t axes;
  Images images;
  Shape kernel, stride, padding, dilation, beyond;

 private:
  /// The last window may reach beyond the padding, but must begin before it.
  std::int64_t beyond_end(std::size_t i) const {
    const std::int64_t length = images.x.shape()[i + 2] + 2 * padding[i], reach = (kernel[i] - 1) * dilation[i] + 1;
    if (length < reach) return 0;
    std::int64_t count = (length - reach + stride[i] - 1) / stride[i] + 1;
    if ((count - 1) * stride[i] >= images.x.shape()[i + 2] + padding[i]) --count;
    return std::max<std::int64_t>((count - 1) * stride[i] + reach - length, 0);
  }
};

/// What is below every element of a dtype.
Scalar lowest(DType t) {
  if (is_floating(t)) return -std::numeric_limits<double>::infinity();
  Scalar value = 0;
  visit_compute(t, [&]<class T>() { value = std::numeric_limits<T>::lowest(); });
  return value;
}

Tensor max_pool(const Pool& p, Location where) {
  const Tensor windows = p.windows(p.images.x, lowest(p.images.x.dtype()), where);
  return p.images.restore(max(windows, p.window_axes(), false, where), where);
}

/// The position of the largest element of each window: first within the window, then among all.
PooledWithIndices max_pool_with_indices(const Pool& p, Location where) {
  const Tensor windows = p.windows(p.images.x, lowest(p.images.x.dtype()), where);
  Shape flat{windows.size(0), windows.size(1), -1};
  for (std::size_t i = 0; i < p.axes; ++i) flat.push_back(windows.shape()[2 + p.axes + i]);
  const vjp::LineGuard line(where);
  VjpTensor rest = argmax(reshape(windows.detach(), flat, where), 2, false, where), index;
  const Shape shape = rest.shape();
  std::int64_t inner = 1;
  for (std::size_t i = p.axes; i-- > 0;) {
    const VjpTensor tap = vjp::remainder(rest, p.kernel[i]);
    rest = vjp::floor_divide(rest, p.kernel[i]);
    Shape open;
    for (std::size_t k = 2 + i; k < shape.rank(); ++k) open.push_back(k == 2 + i ? shape[k] : 1);
    const VjpTensor start = vjp::iota(open, 0, rest) * p.stride[i] - p.padding[i];
    const VjpTensor position = (tap * p.dilation[i] + start) * inner;
    index = inner == 1 && i + 1 == p.axes ? position : index + position;
    inner *= p.images.x.shape()[i + 2];
  }
  return {p.images.restore(max(windows, p.window_axes(), false, where), where),
          p.images.restore(index.tensor(), where)};
}

/// How many elements of x, or of x and its padding, each place along axis i has; broadcast against the result.
VjpTensor counts(const Pool& p, std::size_t i, std::int64_t places, bool count_include_pad, const VjpTensor& like) {
  const std::int64_t length = p.images.x.shape()[i + 2];
  Shape open{places};
  for (std::size_t k = i + 1; k < p.axes; ++k) open.push_back(1);
  const VjpTensor start = vjp::iota(open, 0, like) * p.stride[i] - p.padding[i];
  const VjpTensor end = vjp::minimum(start + p.kernel[i], count_include_pad ? length + p.padding[i] : length);
  return end - (count_include_pad ? start : vjp::maximum(start, 0));
}

Tensor avg_pool(std::string_view function, const Pool& p, bool count_include_pad, std::optional<std::int64_t> divisor,
                Location where) {
  const Tensor& x = p.images.x;
  if (!is_floating(x.dtype()))
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(x.dtype())),
                                  describe(x), where, "convert it first, for example to f32"));
  if (divisor == 0)
    throw ValueError(
        1375, format_error(1375, "ValueError", fmt::format("{}: the divisor is 0", function), describe(x), where));
  const vjp::LineGuard line(where);
  const Tensor windows = p.windows(astype(x, compute_dtype(x.dtype()), where), 0, where);
  VjpTensor total = sum(windows, p.window_axes(), false, where);
  const bool whole = std::ranges::all_of(p.beyond, [](std::int64_t n) { return n == 0; }) &&
                     (count_include_pad || std::ranges::all_of(p.padding, [](std::int64_t n) { return n == 0; }));
  if (divisor || whole) {
    const auto count = static_cast<double>(divisor.value_or(element_count(p.kernel)));
    total = total * (1 / count);
  } else {
    for (std::size_t i = 0; i < p.axes; ++i)
      total = total / vjp::cast(counts(p, i, total.shape()[i + 2], count_include_pad, total), total.dtype());
  }
  return p.images.restore(astype(total.tensor(), x.dtype(), where), where);
}

Tensor lp_pool(std::string_view function, Pool p, double power, Location where) {
  if (!(power > 0)) fail_parameter(function, "p is not above 0", where);
  const FloatingScope in(function, {&p.images.x}, where, true);
  p.images.x = vjp::pow(in(p.images.x), power).tensor();
  const VjpTensor means = avg_pool(function, p, true, {}, where);
  return in.result(vjp::pow(means * static_cast<double>(element_count(p.kernel)), 1 / power));
}

/// One axis cut into `places` windows: the elements of each as a new axis behind, the last one repeated where a window
/// is shorter than others; and how long each is.
struct AdaptiveWindows {
  VjpTensor elements, length;
  std::int64_t longest;
};
AdaptiveWindows adaptive_windows(const VjpTensor& x, unsigned axis, std::int64_t places) {
  const std::int64_t size = x.shape()[axis];
  std::int64_t longest = 0;
  const auto start_of = [&](std::int64_t i) { return i * size / places; };
  const auto end_of = [&](std::int64_t i) { return ((i + 1) * size + places - 1) / places; };
  for (std::int64_t i = 0; i < places; ++i) longest = std::max(longest, end_of(i) - start_of(i));
  const VjpTensor i = vjp::iota({places, 1}, 0, x);
  const VjpTensor start = vjp::floor_divide(i * size, places);
  const VjpTensor end = vjp::floor_divide((i + 1) * size + (places - 1), places);
  const VjpTensor index = vjp::minimum(start + vjp::iota({1, longest}, 1, x), end - 1);
  return {vjp::take(x, index, axis), end - start, longest};
}

Tensor adaptive_pool(std::string_view function, const Tensor& x, std::span<const std::int64_t> sizes, bool largest,
                     Location where) {
  require_defined(function, x, where);
  if (sizes.size() > x.rank() || (!largest && !is_floating(x.dtype())))
    throw ShapeError(1071, format_error(1071, "ShapeError",
                                        fmt::format("{}: {} sizes for the last axes of floats", function, sizes.size()),
                                        describe(x), where));
  const vjp::LineGuard line(where);
  VjpTensor y = largest ? x : astype(x, compute_dtype(x.dtype()), where);
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const auto axis = static_cast<unsigned>(x.rank() - sizes.size() + k);
    const std::int64_t places = sizes[k] == -1 ? x.size(axis) : sizes[k];
    if (places < 1 || x.size(axis) == 0)
      throw ShapeError(
          1077, format_error(1077, "ShapeError", fmt::format("{}: {} windows along axis {}", function, places, axis),
                             describe(x), where));
    if (places == x.size(axis)) continue;
    const AdaptiveWindows w = adaptive_windows(y, axis, places);
    const auto last = static_cast<std::uint16_t>(1u << (axis + 1));
    if (largest) {
      y = vjp::reduce(Op::max, w.elements, last, false);
      continue;
    }
    Shape open{places};
    for (unsigned i = axis + 1; i < x.rank(); ++i) open.push_back(1);
    Shape taps{places, w.longest};
    for (unsigned i = axis + 1; i < x.rank(); ++i) taps.push_back(1);
    const VjpTensor counted = vjp::reshape(vjp::iota({1, w.longest}, 1, y) < w.length, taps);
    y = vjp::reduce(Op::sum, vjp::where(counted, w.elements, 0), last, false) /
        vjp::cast(vjp::reshape(w.length, open), y.dtype());
  }
  return astype(y.tensor(), x.dtype(), where);
}

Tensor adaptive_pool_of(std::string_view function, std::size_t axes, const Tensor& x, const IntegerList& sizes,
                        bool largest, Location where) {
  const Images images(function, x, axes, where);
  return images.restore(
      adaptive_pool(function, images.x, by_axis(function, "output_size", sizes, axes, -1, where), largest, where),
      where);
}

}  // namespace

#define FERMATA_MAX_POOL(name, axes)                                                                                  \
  Tensor name(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride, const IntegerList& padding, \
              const IntegerList& dilation, bool ceil_mode, Location where) {                                          \
    return max_pool({#name, x, axes, kernel_size, stride, padding, dilation, ceil_mode, where}, where);               \
  }
FERMATA_MAX_POOL(max_pool1d, 1)
FERMATA_MAX_POOL(max_pool2d, 2)
FERMATA_MAX_POOL(max_pool3d, 3)

#define FERMATA_MAX_POOL_WITH_INDICES(name, axes)                                                                    \
  PooledWithIndices name(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride,                 \
                         const IntegerList& padding, const IntegerList& dilation, bool ceil_mode, Location where) {  \
    return max_pool_with_indices({#name, x, axes, kernel_size, stride, padding, dilation, ceil_mode, where}, where); \
  }
FERMATA_MAX_POOL_WITH_INDICES(max_pool1d_with_indices, 1)
FERMATA_MAX_POOL_WITH_INDICES(max_pool2d_with_indices, 2)
FERMATA_MAX_POOL_WITH_INDICES(max_pool3d_with_indices, 3)

#define FERMATA_AVG_POOL(name, axes)                                                                                  \
  Tensor name(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride, const IntegerList& padding, \
              bool ceil_mode, bool count_include_pad, std::optional<std::int64_t> divisor, Location where) {          \
    return avg_pool(#name, {#name, x, axes, kernel_size, stride, padding, 1, ceil_mode, where}, count_include_pad,    \
                    divisor, where);                                                                                  \
  }
FERMATA_AVG_POOL(avg_pool1d, 1)
FERMATA_AVG_POOL(avg_pool2d, 2)
FERMATA_AVG_POOL(avg_pool3d, 3)

#define FERMATA_LP_POOL(name, axes)                                                                                 \
  Tensor name(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride, bool ceil_mode, \
              Location where) {                                                                                     \
    return lp_pool(#name, {#name, x, axes, kernel_size, stride, 0, 1, ceil_mode, where}, p, where);                 \
  }
FERMATA_LP_POOL(lp_pool1d, 1)
FERMATA_LP_POOL(lp_pool2d, 2)
FERMATA_LP_POOL(lp_pool3d, 3)

#define FERMATA_ADAPTIVE_POOL(name, axes, largest)                               \
  Tensor name(const Tensor& x, const IntegerList& output_size, Location where) { \
    return adaptive_pool_of(#name, axes, x, output_size, largest, where);        \
  }
FERMATA_ADAPTIVE_POOL(adaptive_avg_pool1d, 1, false)
FERMATA_ADAPTIVE_POOL(adaptive_avg_pool2d, 2, false)
FERMATA_ADAPTIVE_POOL(adaptive_avg_pool3d, 3, false)
FERMATA_ADAPTIVE_POOL(adaptive_max_pool1d, 1, true)
FERMATA_ADAPTIVE_POOL(adaptive_max_pool2d, 2, true)
FERMATA_ADAPTIVE_POOL(adaptive_max_pool3d, 3, true)

Tensor adaptive_avg_pool(const Tensor& x, const IntegerList& output_size, Location where) {
  return adaptive_pool("adaptive_avg_pool", x, output_size, false, where);
}
Tensor adaptive_max_pool(const Tensor& x, const IntegerList& output_size, Location where) {
  return adaptive_pool("adaptive_max_pool", x, output_size, true, where);
}

}  // namespace fermata
