// resize() and interpolate(); see fermata/resampling.h.
//
// An axis at a time: where the elements of the result lie in x, then the elements around them, weighted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/resampling.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// One axis at another resolution: element i lies at (i + shift) * from_steps / to_steps + offset.
struct ResizedAxis {
  unsigned axis;
  std::int64_t from, to;
  double shift = 0, from_steps = 1, to_steps = 1, offset = 0;
  bool cropped = false;
};

class Resize {
 public:
  Resize(std::string_view function, const Tensor& x, const ResizeOptions& o, Location where)
      : function_(function), x_(x), o_(o), where_(where), axes_(axes_of()) {}

  std::vector<ResizedAxis> geometry() const {
    const std::size_t count = axes_.size();
    if (o_.size.empty() == o_.scale.empty()) fail_value("requires either a size or a scale factor");
    const std::size_t given = std::max(o_.size.size(), o_.scale.size());
    if (given != count)
      fail_value(fmt::format("{} numbers for {} {}axes", given, count, function_ == "interpolate" ? "spatial " : ""));
    const bool crops = o_.coordinates == ResizeCoordinates::tf_crop_and_resize;
    if (o_.roi.size() != (crops ? 2 * count : 0))
      fail_value(fmt::format("{} numbers for a region of {} axes", o_.roi.size(), crops ? count : 0));
    std::vector<ResizedAxis> all;
    const double common = common_scale();
    for (std::size_t i = 0; i < count; ++i) {
      const auto from = static_cast<double>(x_.shape()[axes_[i]]);
      const double part = crops ? o_.roi[count + i] - o_.roi[i] : 1;
      const double scale = o_.size.empty() ? o_.scale[i] : common;  // 0: sizes as they are
      const double wanted = !o_.size.empty()
                                ? (scale > 0 ? std::floor(from * scale + 0.5) : static_cast<double>(o_.size[i]))
                                : std::floor(from * part * scale);
      if (!(wanted >= 1) || from == 0 || wanted > 0x1p62)
        throw ShapeError(
            1077, format_error(1077, "ShapeError", fmt::format("{}: no elements along axis {}", function_, axes_[i]),
                               describe(x_), where_));
      all.push_back(axis_of(axes_[i], static_cast<std::int64_t>(wanted), scale, crops ? i : 0));
    }
    return all;
  }

 private:
  [[noreturn]] void fail_value(const std::string& what) const {
    throw ValueError(1374,
                     format_error(1374, "ValueError", fmt::format("{}: {}", function_, what), describe(x_), where_));
  }

  std::vector<unsigned> axes_of() const {
    std::vector<unsigned> all(x_.rank());
    std::iota(all.begin(), all.end(), 0u);
    if (o_.axes.empty()) return all;
    all.clear();
    for (const std::int64_t axis : o_.axes) {
      const auto one = static_cast<unsigned>(normalize_axis(function_, axis, type_of(x_), where_));
      if (std::ranges::find(all, one) != all.end()) fail_value(fmt::format("axis {} twice", one));
      all.push_back(one);
    }
    return all;
  }

  /// What all axes are scaled by, or 0.
  double common_scale() const {
    if (o_.aspect_ratio == AspectRatio::stretch || o_.size.empty()) return 0;
    double least = 0, most = 0;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const double scale = static_cast<double>(o_.size[i]) / static_cast<double>(x_.shape()[axes_[i]]);
      least = i == 0 ? scale : std::min(least, scale), most = std::max(most, scale);
    }
    return o_.aspect_ratio == AspectRatio::not_larger ? least : most;
  }

  /// `scale` is 0 where the size alone says it.
  ResizedAxis axis_of(unsigned number, std::int64_t to, double scale, std::size_t i) const {
    ResizedAxis a{number, x_.shape()[number], to};
    const auto from = static_cast<double>(a.from), whole = static_cast<double>(to);
    const double length = scale > 0 ? from * scale : whole;  // of the result, before it is rounded
    const auto by_steps = [&] { a.from_steps = scale > 0 ? 1 : from, a.to_steps = scale > 0 ? scale : whole; };
    switch (o_.coordinates) {
      case ResizeCoordinates::asymmetric: by_steps(); break;
      case ResizeCoordinates::tf_half_pixel_for_nearest: by_steps(), a.shift = 0.5; break;
      case ResizeCoordinates::half_pixel: by_steps(), a.shift = 0.5, a.offset = -0.5; break;
      case ResizeCoordinates::pytorch_half_pixel:
        by_steps(), a.shift = 0.5, a.offset = -0.5;
        if (to == 1) a.shift = 0;
        break;
      case ResizeCoordinates::half_pixel_symmetric:
        by_steps(), a.shift = 0.5, a.offset = from / 2 * (1 - whole / length) - 0.5;
        break;
      case ResizeCoordinates::align_corners:
        a.from_steps = length == 1 ? 0 : from - 1, a.to_steps = length == 1 ? 1 : length - 1;
        break;
      case ResizeCoordinates::tf_crop_and_resize: {
        const double begin = o_.roi[i], end = o_.roi[axes_.size() + i];
        a.cropped = true;
        a.offset = begin * (from - 1);
        a.from_steps = to == 1 ? 0 : (end - begin) * (from - 1), a.to_steps = to == 1 ? 1 : whole - 1;
        if (to == 1) a.offset += (end - begin) * (from - 1) / 2;
        break;
      }
    }
    return a;
  }

  std::string_view function_;
  const Tensor& x_;
  const ResizeOptions& o_;
  Location where_;
  std::vector<unsigned> axes_;
};

/// Where in x the elements of the result lie, as f64: exact for every size that occurs.
VjpTensor places(const ResizedAxis& a, const Tensor& x) {
  const VjpTensor i = vjp::cast(vjp::iota({a.to}, 0, x), DType::f64);
  const VjpTensor step = (i + a.shift) * a.from_steps / a.to_steps;
  return a.offset == 0 ? step : step + a.offset;
}
VjpTensor inside(const VjpTensor& place, std::int64_t size) { return vjp::minimum(vjp::maximum(place, 0), size - 1); }
VjpTensor taken(const VjpTensor& x, const VjpTensor& place, const ResizedAxis& a) {
  return vjp::take(x, vjp::cast(inside(place, a.from), DType::i64), a.axis);
}

/// Numbers along an axis, or for its elements and their taps, which broadcast against x.
VjpTensor along(const VjpTensor& numbers, const VjpTensor& x, const ResizedAxis& a) {
  Shape open = numbers.shape();
  for (unsigned i = a.axis + 1; i < x.shape().rank(); ++i) open.push_back(1);
  return vjp::reshape(numbers.dtype() == DType::boolean ? numbers : vjp::cast(numbers, x.dtype()), open);
}

VjpTensor nearest(const VjpTensor& x, const ResizedAxis& a, const VjpTensor& at, NearestRule rule) {
  switch (rule) {
    case NearestRule::round_prefer_floor: return taken(x, vjp::ceil(at - 0.5), a);
    case NearestRule::round_prefer_ceil: return taken(x, vjp::floor(at + 0.5), a);
    case NearestRule::floor: return taken(x, vjp::floor(at), a);
    case NearestRule::ceil: break;
  }
  return taken(x, vjp::ceil(at), a);
}

VjpTensor linear(const VjpTensor& x, const ResizedAxis& a, const VjpTensor& place) {
  const VjpTensor at = inside(place, a.from), first = vjp::floor(at), weight = along(at - first, x, a);
  return taken(x, first, a) * (1 - weight) + taken(x, first + 1, a) * weight;
}

/// Keys' cubic convolution at a distance below 1, and from 1 to 2.
VjpTensor near_weight(const VjpTensor& d, double c) { return (((c + 2) * d - (c + 3)) * d) * d + 1; }
VjpTensor far_weight(const VjpTensor& d, double c) { return ((c * d - 5 * c) * d + 8 * c) * d - 4 * c; }

VjpTensor cubic(const VjpTensor& x, const ResizedAxis& a, const VjpTensor& at, const ResizeOptions& o) {
  const VjpTensor first = vjp::floor(at), t = at - first;
  const double c = o.cubic_coefficient;
  VjpTensor weights[] = {far_weight(t + 1, c), near_weight(t, c), near_weight(1 - t, c), far_weight(2 - t, c)};
  if (o.exclude_outside) {
    VjpTensor total;
    for (int k = 0; k < 4; ++k) {
      const VjpTensor place = first + (k - 1);
      weights[k] = vjp::where(vjp::equal(place, inside(place, a.from)), weights[k], 0);
      total = k == 0 ? weights[k] : total + weights[k];
    }
    for (VjpTensor& w : weights) w = w / total;
  }
  VjpTensor sum;
  for (int k = 0; k < 4; ++k) {
    const VjpTensor part = taken(x, first + (k - 1), a) * along(weights[k], x, a);
    sum = k == 0 ? part : sum + part;
  }
  return sum;
}

/// Kernels that are wider than an element: as many taps as their width has.
VjpTensor antialiased(const VjpTensor& x, const ResizedAxis& a, const VjpTensor& place, const ResizeOptions& o) {
  const double step = std::max(a.from_steps / a.to_steps, 1.0), reach = o.mode == ResizeMode::cubic ? 2 : 1;
  auto taps = static_cast<std::int64_t>(std::ceil(2 * reach * step)) + 1;
  const VjpTensor at = vjp::reshape(place, {a.to, 1});
  VjpTensor first = vjp::floor(at - reach * step) + 1;
  if (o.exclude_outside) {
    taps = std::min(taps, a.from);
    first = vjp::minimum(vjp::maximum(first, 0), a.from - taps);
  }
  const VjpTensor tap = first + vjp::cast(vjp::iota({taps}, 0, x), DType::f64);
  const VjpTensor d = vjp::abs(tap - at) / step;
  const double c = o.cubic_coefficient;
  VjpTensor weight = o.mode == ResizeMode::cubic
                         ? vjp::where(d < 1, near_weight(d, c), vjp::where(d < 2, far_weight(d, c), 0))
                         : vjp::maximum(1 - d, 0);
  weight = weight / vjp::reduce(Op::sum, weight, 1u << 1, true);
  const auto last = static_cast<std::uint16_t>(1u << (a.axis + 1));
  return vjp::reduce(Op::sum, taken(x, tap, a) * along(weight, x, a), last, false);
}

Tensor resized(std::string_view function, const Tensor& x, const ResizeOptions& o, Location where) {
  std::vector<ResizedAxis> axes = Resize(function, x, o, where).geometry();
  // Axes that shrink first, so that the others have less to do; then the last ones, where each element is taken by
  // itself, before those of whole rows make more of them.
  std::ranges::sort(axes, [](const ResizedAxis& a, const ResizedAxis& b) {
    const bool first = a.to < a.from, second = b.to < b.from;
    return first != second ? first : first ? a.axis < b.axis : a.axis > b.axis;
  });
  const vjp::LineGuard line(where);
  const bool smooth = o.mode != ResizeMode::nearest;
  const DType given = x.dtype();
  if (smooth && !is_floating(given))
    throw DTypeError(1101, format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(given)),
                                        describe(x), where, "convert it first, for example to f32"));
  VjpTensor y = smooth ? astype(x, compute_dtype(given), where) : x;
  for (const ResizedAxis& a : axes) {
    if (a.from == a.to && a.from_steps == a.to_steps && a.shift + a.offset == 0) continue;
    const VjpTensor at = places(a, x);
    if (o.mode == ResizeMode::nearest)
      y = nearest(y, a, at, o.nearest);
    else if (o.antialias && a.from_steps > a.to_steps)
      y = antialiased(y, a, at, o);
    else
      y = o.mode == ResizeMode::linear ? linear(y, a, at) : cubic(y, a, at, o);
    if (a.cropped) y = vjp::where(along(vjp::equal(at, inside(at, a.from)), y, a), y, o.extrapolation_value);
  }
  return astype(y.tensor(), given, where);
}

}  // namespace

Tensor resize(const Tensor& x, const ResizeOptions& options, Location where) {
  require_defined("resize", x, where);
  return resized("resize", x, options, where);
}

Tensor interpolate(const Tensor& x, const InterpolateOptions& o, Location where) {
  require_defined("interpolate", x, where);
  if (x.rank() < 3)
    throw ShapeError(1077, format_error(1077, "ShapeError", "interpolate: x must have batch, channel and spatial axes",
                                        describe(x), where));
  const std::size_t spatial = x.rank() - 2u;
  const bool smooth = o.mode == Interpolation::linear || o.mode == Interpolation::bicubic;
  ResizeOptions r{.size = o.size, .scale = o.scale_factor};
  if (r.size.size() == 1) r.size.resize(spatial, r.size[0]);
  if (r.scale.size() == 1) r.scale.resize(spatial, r.scale[0]);
  for (std::size_t i = 0; i < spatial; ++i) r.axes.push_back(static_cast<std::int64_t>(i + 2));
  r.mode = !smooth ? ResizeMode::nearest : o.mode == Interpolation::linear ? ResizeMode::linear : ResizeMode::cubic;
  if (o.mode == Interpolation::nearest) r.coordinates = ResizeCoordinates::asymmetric, r.nearest = NearestRule::floor;
  if (o.mode == Interpolation::nearest_exact) r.nearest = NearestRule::round_prefer_ceil;
  r.antialias = o.antialias && smooth, r.exclude_outside = r.antialias;
  if (r.antialias) r.cubic_coefficient = -0.5;  // as Pillow has it
  if (o.mode != Interpolation::area && !(smooth && o.align_corners)) return resized("interpolate", x, r, where);
  // Only the sizes matter.
  std::vector<std::int64_t> sizes;
  for (const ResizedAxis& a : Resize("interpolate", x, r, where).geometry()) sizes.push_back(a.to);
  if (o.mode == Interpolation::area) return adaptive_avg_pool(x, sizes, where);
  r.size = sizes, r.scale.clear(), r.coordinates = ResizeCoordinates::align_corners;
  return resized("interpolate", x, r, where);
}

}  // namespace fermata
