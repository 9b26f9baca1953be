// Images at places that tensors give; see fermata/sampling.h.
//
// grid_sample of few channels is an op on the CPU, and else made of others as roi_align and deform_conv are. Those turn
// images so that the channels of an element lie together: a place reads whole rows of channels. What is around a place
// are taps, a list for each axis; their products are the weights of the rows.
#include "fermata/sampling.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "fermata/convolution.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "frontend/ops/neural/spatial_arguments.h"
#include "frontend/ops/op_rules.h"
#include "ir/error.h"
#include "ir/ops/indexing.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

struct Named {
  std::string_view name;
  const Tensor& tensor;
};
[[noreturn]] void fail_shape(std::string_view function, std::string_view what, std::initializer_list<Named> operands,
                             Location where) {
  std::vector<ErrorOperand> lines;
  for (const Named& o : operands)
    if (o.tensor.defined()) lines.push_back({o.name, to_string(o.tensor.dtype(), o.tensor.shape()), ""});
  throw ShapeError(1077, format_error(1077, "ShapeError", fmt::format("{}: {}", function, what), lines, where));
}

Shape joined(std::initializer_list<std::int64_t> first, std::span<const std::int64_t> middle,
             std::initializer_list<std::int64_t> last = {}) {
  Shape all;
  for (const std::int64_t n : first) all.push_back(n);
  for (const std::int64_t n : middle) all.push_back(n);
  for (const std::int64_t n : last) all.push_back(n);
  return all;
}

/// An element near a place along an axis, and its weight: 0 outside of the image.
struct Tap {
  VjpTensor index, weight;  // i64 within the axis; scalar 1 where all count fully
  VjpTensor slope{};        // the derivative of the weight by the place, where it is asked for
};
using Taps = std::vector<Tap>;

VjpTensor between(const VjpTensor& x, const VjpTensor& low, const VjpTensor& high) {
  return vjp::minimum(vjp::maximum(x, low), high);
}
/// A whole number as a position within an axis; NaN as the first one.
VjpTensor position(const VjpTensor& whole, std::int64_t size) {
  return between(vjp::cast(between(whole, 0, size - 1), DType::i64), 0, size - 1);
}

/// A place after it was brought to where it means the same, and the derivative of that.
struct Moved {
  VjpTensor place, slope = 1;
};
VjpTensor as_number(const VjpTensor& test, const VjpTensor& like) { return vjp::cast(test, like.dtype()); }

/// Kept between two numbers: a derivative of 1 inside.
Moved kept_between(const Moved& x, double low, double high, bool with_slope) {
  Moved y{between(x.place, low, high), x.slope};
  if (with_slope) y.slope = y.slope * as_number(vjp::logical_and(x.place >= low, x.place <= high), x.place);
  return y;
}
/// Mirrored at both ends of the axis until it is inside.
Moved mirrored(const VjpTensor& place, std::int64_t size, bool align_corners, bool with_slope = false) {
  const double low = align_corners ? 0 : -0.5, span = static_cast<double>(align_corners ? size - 1 : size);
  if (span <= 0) return {place * 0, place * 0};
  const VjpTensor away = place - low, turn = vjp::remainder(vjp::abs(away), 2 * span);
  const VjpTensor inside = span - vjp::abs(turn - span) + low;
  const VjpTensor slope = with_slope ? -vjp::sign(away) * vjp::sign(turn - span) : VjpTensor(1);
  return kept_between({inside, slope}, 0, static_cast<double>(size - 1), with_slope);
}

/// The taps of places along an axis. Zeros around an image are taps without weight.
class Around {
 public:
  Around(const GridSampleOptions& options, std::int64_t size, bool with_slopes = false)
      : o_(options), size_(size), with_slopes_(with_slopes) {}

  Taps operator()(const VjpTensor& given) const {
    Moved moved{given};
    const auto last = static_cast<double>(size_ - 1);
    if (o_.mode != Sampling::cubic && o_.padding == SamplePadding::border)
      moved = kept_between(moved, 0, last, with_slopes_);
    if (o_.mode != Sampling::cubic && o_.padding == SamplePadding::reflection)
      moved = mirrored(given, size_, o_.align_corners, with_slopes_);
    // Far outside nothing changes, and whole numbers fit an i64.
    if (o_.padding == SamplePadding::zeros) moved.place = between(moved.place, -3, size_ + 2);
    const VjpTensor& place = moved.place;
    if (o_.mode == Sampling::nearest) return {tap(vjp::round(place), 1, {})};
    const VjpTensor first = vjp::floor(place), t = place - first;
    const auto chained = [&](const VjpTensor& slope) {
      return !with_slopes_ ? VjpTensor() : moved.slope.is_scalar() ? slope : slope * moved.slope;
    };
    if (o_.mode == Sampling::linear) {
      const VjpTensor one = with_slopes_ ? 0 * t + 1 : VjpTensor();
      return {tap(first, 1 - t, with_slopes_ ? chained(-one) : one), tap(first + 1, t, chained(one))};
    }
    // Keys' kernel with a = -3/4.
    const auto near = [](const VjpTensor& d) { return ((1.25 * d - 2.25) * d) * d + 1; };
    const auto far = [](const VjpTensor& d) { return ((-0.75 * d + 3.75) * d - 6) * d + 3; };
    const auto near_slope = [&](const VjpTensor& d) { return with_slopes_ ? (3.75 * d - 4.5) * d : VjpTensor(); };
    const auto far_slope = [&](const VjpTensor& d) { return with_slopes_ ? (-2.25 * d + 7.5) * d - 6 : VjpTensor(); };
    const auto turned = [&](const VjpTensor& slope) { return with_slopes_ ? -slope : slope; };
    return {tap(first - 1, far(t + 1), chained(far_slope(t + 1))), tap(first, near(t), chained(near_slope(t))),
            tap(first + 1, near(1 - t), chained(turned(near_slope(1 - t)))),
            tap(first + 2, far(2 - t), chained(turned(far_slope(2 - t))))};
  }

 private:
  Tap tap(VjpTensor whole, const VjpTensor& weight, const VjpTensor& slope) const {
    if (o_.padding == SamplePadding::zeros) {
      const VjpTensor counts = vjp::logical_and(whole >= 0, whole <= size_ - 1);
      return {position(whole, size_), vjp::where(counts, weight, vjp::cast(0 * whole, whole.dtype())),
              with_slopes_ ? vjp::where(counts, slope, 0) : slope};
    }
    if (o_.padding == SamplePadding::reflection) whole = mirrored(whole, size_, o_.align_corners).place;
    return {position(whole, size_), weight, slope};
  }

  const GridSampleOptions& o_;
  std::int64_t size_;
  bool with_slopes_;
};

/// The taps of places [N, P, axes] from -1 to 1 in an image of these sizes. Slopes are those by the coordinates.
std::vector<Taps> taps_of_grid(const GridSampleOptions& o, const Tensor& coordinates,
                               std::span<const std::int64_t> sizes, bool with_slopes, Location where) {
  std::vector<Taps> taps;
  const auto axes = static_cast<std::int64_t>(sizes.size());
  for (std::int64_t k = 0; k < axes; ++k) {
    const std::int64_t size = sizes[static_cast<std::size_t>(k)];
    const VjpTensor g = select(coordinates, 2, axes - 1 - k, where);
    const auto length = static_cast<double>(size);
    const double stretch = (o.align_corners ? length - 1 : length) / 2;
    taps.push_back(Around(o, size, with_slopes)(o.align_corners ? (g + 1) * stretch : ((g + 1) * length - 1) / 2));
    if (with_slopes)
      for (Tap& tap : taps.back()) tap.slope = tap.slope * stretch;
  }
  return taps;
}

/// Images [M, C, ..S] as rows of channels, [M * S, C], in the order of their elements in memory.
VjpTensor channel_rows(const Tensor& x, Location where) {
  const std::int64_t c = x.size(1);
  const Tensor last =
      transpose(reshape(x, {x.size(0), c, element_count(x.shape()) / std::max<std::int64_t>(x.size(0) * c, 1)}, where),
                1, 2, where);
  return reshape(copy(last, where), {-1, c}, where);
}

/// Calls f(the number of a tap of each axis) for all of their products.
template <class F> void for_products(std::span<const Taps> axes, F&& f) {
  std::vector<std::size_t> at(axes.size(), 0);
  while (true) {
    f(at);
    std::size_t k = axes.size();
    while (k > 0 && ++at[k - 1] == axes[k - 1].size()) at[--k] = 0;
    if (k == 0) return;
  }
}
/// The position of such a product within an image, and its weight, which is a scalar where all count fully.
struct Product {
  VjpTensor index, weight;
};
Product product_of(std::span<const Taps> axes, std::span<const std::int64_t> sizes, std::span<const std::size_t> at) {
  Product p;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const Tap& tap = axes[k][at[k]];
    p.index = k == 0 ? tap.index : p.index * sizes[k] + tap.index;
    if (!tap.weight.is_scalar()) p.weight = p.weight.is_scalar() ? tap.weight : p.weight * tap.weight;
  }
  return p;
}
/// The sum over all products of taps of what `part` gives for the position and the weight.
template <class Part>
VjpTensor sum_of_taps(std::span<const Taps> axes, std::span<const std::int64_t> sizes, Part&& part) {
  VjpTensor sum;
  bool is_first = true;
  for_products(axes, [&](std::span<const std::size_t> at) {
    const auto [index, weight] = product_of(axes, sizes, at);
    const VjpTensor one = part(index, weight);
    sum = is_first ? one : sum + one;
    is_first = false;
  });
  return sum;
}

/// The sum of the rows around places, by their weights: [.., C] for places [..]. `base` is the row of the first element
/// of the image of each place.
VjpTensor weighted_rows(const VjpTensor& rows, const VjpTensor& base, std::span<const Taps> axes,
                        std::span<const std::int64_t> sizes) {
  return sum_of_taps(axes, sizes, [&](const VjpTensor& index, const VjpTensor& weight) {
    const VjpTensor row = vjp::take(rows, base + index, 0);
    return weight.is_scalar() ? row
                              : row * vjp::expand_dims(weight, static_cast<std::uint16_t>(1u << index.shape().rank()));
  });
}

/// Elements of images [N, C, S] at positions [N, P]: [N, C, P].
VjpTensor elements_at(const VjpTensor& images, const VjpTensor& index, Location where) {
  const Shape shape = images.shape();
  if (shape[0] == 1) {
    const VjpTensor alone = vjp::take(vjp::squeeze(images, 1), vjp::squeeze(index, 1), 1);
    return vjp::expand_dims(alone, 1);
  }
  const VjpTensor wide = vjp::broadcast_to(vjp::expand_dims(index, 1u << 1), {shape[0], shape[1], index.shape()[1]});
  return gather(images.tensor(), wide.tensor(), 2, where);
}
VjpTensor for_channels(const VjpTensor& weight) {
  return weight.is_scalar() ? weight : vjp::expand_dims(weight, 1u << 1);
}
/// The weighted sum of the elements around places, per channel: [N, C, P] for places [N, P].
VjpTensor weighted_planes(const VjpTensor& images, std::span<const Taps> axes, std::span<const std::int64_t> sizes,
                          Location where) {
  return sum_of_taps(axes, sizes, [&](const VjpTensor& index, const VjpTensor& weight) -> VjpTensor {
    const VjpTensor plane = elements_at(images, index, where);
    return weight.is_scalar() ? plane : plane * for_channels(weight);
  });
}

/// The product of a number of sizes.
std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t all = 1;
  for (const std::int64_t n : sizes) all *= n;
  return all;
}

std::span<const std::int64_t> spatial(const Shape& shape) { return {shape.data() + 2, shape.size() - 2u}; }

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& o, Location where) {
  require_defined("grid_sample", x, where), require_defined("grid_sample", grid, where);
  const Shape shape = x.shape();
  const std::int64_t axes = static_cast<std::int64_t>(shape.rank()) - 2;
  if (axes < 1 || grid.rank() < 2 || grid.size(-1) != axes || grid.size(0) != x.size(0))
    fail_shape("grid_sample", "x [N, C, ..S] and grid [N, .., axes of S] do not match", {{"x", x}, {"grid", grid}},
               where);
  const FloatingScope in("grid_sample", {&x, &grid}, where, true);
  const Shape sizes{spatial(shape)};
  if (product(sizes) == 0) fail_shape("grid_sample", "images without elements", {{"x", x}, {"grid", grid}}, where);
  const Shape places = grid.shape();
  const std::int64_t count = element_count(places) / std::max<std::int64_t>(places[0] * axes, 1);
  const Tensor coordinates = reshape(in(grid).tensor(), {places[0], count, axes}, where), images = in(x).tensor();
  constexpr std::int64_t kManyChannels = 32;  // from here on rows of channels are read faster than planes
  const bool by_rows = x.size(1) >= kManyChannels;
  Tensor y;
  // The numbers of ops::GridSample.
  static_assert(static_cast<int>(Sampling::nearest) == 0 && static_cast<int>(Sampling::linear) == 1 &&
                static_cast<int>(Sampling::cubic) == 2 && static_cast<int>(SamplePadding::zeros) == 0 &&
                static_cast<int>(SamplePadding::border) == 1 && static_cast<int>(SamplePadding::reflection) == 2);
  if (device(x, where) == cpu() && !by_rows) {
    const std::array operands{images, coordinates};
    y = general_call<Op::grid_sample>({.mode = {static_cast<std::int64_t>(o.mode)},
                                       .padding = {static_cast<std::int64_t>(o.padding)},
                                       .align_corners = {o.align_corners}},
                                      operands, where);
  } else {
    const std::vector<Taps> taps = taps_of_grid(o, coordinates, sizes, false, where);
    if (by_rows) {
      const VjpTensor rows = channel_rows(images, where);
      const VjpTensor base = vjp::iota({places[0], 1}, 0, rows) * product(sizes);
      y = transpose(weighted_rows(rows, base, taps, sizes).tensor(), 1, 2, where);
    } else {
      y = weighted_planes(reshape(images, {shape[0], shape[1], product(sizes)}, where), taps, sizes, where).tensor();
    }
  }
  return astype(reshape(y, joined({places[0], x.size(1)}, {places.data() + 1, places.size() - 2u}), where), x.dtype(),
                where);
}

namespace vjp {
namespace {

/// A call of grid_sample and its gradient [N, C, P].
struct SampledCall {
  explicit SampledCall(const VjpArgs& args)
      : where(current_line), shape(args.shape(0)), sizes{spatial(shape)}, count(product(sizes)) {
    const auto [mode, padding, align_corners] = args.attributes_of<ops::GridSample>();
    options = {static_cast<Sampling>(mode.value), static_cast<SamplePadding>(padding.value), align_corners.value};
  }
  Location where;
  Shape shape, sizes;
  std::int64_t count;
  GridSampleOptions options;
};

/// To each element what was read of it.
VjpTensor grid_sample_vjp(const VjpArgs& args, unsigned) {
  const SampledCall call(args);
  const std::vector<Taps> taps = taps_of_grid(call.options, args.x[1].tensor(), call.sizes, false, call.where);
  const Shape planes{call.shape[0], call.shape[1], call.count};
  VjpTensor all = full(0, {args.g.dtype(), planes}, args.g);
  for_products(taps, [&](std::span<const std::size_t> at) {
    const auto [index, weight] = product_of(taps, call.sizes, at);
    const VjpTensor share = weight.is_scalar() ? args.g : args.g * for_channels(weight);
    const VjpTensor wide = broadcast_to(expand_dims(index, 1u << 1), args.g.shape());
    const std::array tensors{all.tensor(), wide.tensor(), share.tensor()};
    all = vjp::call<Op::scatter_add>({.axis = {2}}, tensors);
  });
  return reshape(all, call.shape);
}

/// To each coordinate the slopes of the weights of its axis, times the weights along the others.
VjpTensor grid_sample_place_vjp(const VjpArgs& args, unsigned) {
  const SampledCall call(args);
  const Tensor& grid = args.x[1].tensor();
  if (call.options.mode == Sampling::nearest) return full(0, {grid.dtype(), grid.shape()}, grid);
  const std::vector<Taps> taps = taps_of_grid(call.options, grid, call.sizes, true, call.where);
  const VjpTensor images = reshape(args.x[0], {call.shape[0], call.shape[1], call.count});
  std::vector<VjpTensor> sums(taps.size());
  for_products(taps, [&](std::span<const std::size_t> at) {
    const VjpTensor read = elements_at(images, product_of(taps, call.sizes, at).index, call.where);
    const VjpTensor change = reduce(Op::sum, args.g * read, 1u << 1, false);
    for (std::size_t k = 0; k < taps.size(); ++k) {
      VjpTensor part = change * taps[k][at[k]].slope;
      for (std::size_t other = 0; other < taps.size(); ++other)
        if (other != k) part = part * taps[other][at[other]].weight;
      sums[k] = sums[k].is_scalar() ? part : sums[k] + part;
    }
  });
  std::vector<Tensor> coordinates;
  for (std::size_t k = sums.size(); k-- > 0;) coordinates.push_back(sums[k].tensor());  // the last axis first
  return stack(coordinates, -1, call.where);
}

/// Images and places of a batch are more of them; with the same places for all, their channels are.
Tensor batched_grid_sample(const BatchedCall& call) {
  const Shape x = call.shape(0), grid = call.shape(1);
  const auto attributes = attributes_of<ops::GridSample>(call.attributes);
  if (!call.operands[1].batched) {
    Shape wide = x, apart{x[0], call.size, x[1], grid[1]};
    wide[1] *= call.size;
    const std::array operands{fermata::reshape(moveaxis(call.with_batch(0), 0, 1), wide), call.operands[1].value};
    return moveaxis(fermata::reshape(vjp::call<Op::grid_sample>(attributes, operands).tensor(), apart), 1, 0);
  }
  const auto together = [&](std::size_t k, Shape shape) {
    shape[0] *= call.size;
    return fermata::reshape(call.with_batch(k), shape);
  };
  const std::array operands{together(0, x), together(1, grid)};
  return fermata::reshape(vjp::call<Op::grid_sample>(attributes, operands).tensor(), {call.size, x[0], x[1], grid[1]});
}

}  // namespace

FERMATA_OP_RULES(grid_sample, batched_grid_sample, gradient(grid_sample_vjp, kSecond),
                 gradient(grid_sample_place_vjp, kFirst | kSecond));

}  // namespace vjp

Tensor affine_grid(const Tensor& theta, const IntegerList& size, bool align_corners, Location where) {
  const FloatingScope in("affine_grid", {&theta}, where);
  const std::span<const std::int64_t> given = size;
  const auto axes = static_cast<std::int64_t>(given.size()) - 2;
  if (axes < 1 || theta.rank() != 3 || theta.size(1) != axes || theta.size(2) != axes + 1 || theta.size(0) != given[0])
    fail_shape("affine_grid", fmt::format("theta [N, A, A + 1] and {} sizes do not match", given.size()),
               {{"theta", theta}}, where);
  const VjpTensor t = in(theta);
  const Shape sizes{given.subspan(2)};
  for (const std::int64_t n : sizes)
    if (n < 1) fail_shape("affine_grid", fmt::format("a size of {}", n), {{"theta", theta}}, where);
  const auto column = [&](std::int64_t k) {  // [N, 1 .., A]
    Shape open{given[0]};
    for (std::int64_t i = 0; i < axes; ++i) open.push_back(1);
    open.push_back(axes);
    return vjp::reshape(select(t.tensor(), 2, k, where), open);
  };
  VjpTensor sum = column(axes);
  for (std::int64_t k = 0; k < axes; ++k) {
    const std::int64_t n = sizes[static_cast<std::size_t>(axes - 1 - k)];
    Shape open{n};
    for (std::int64_t i = 0; i <= k; ++i) open.push_back(1);
    const VjpTensor i = vjp::cast(vjp::iota(open, 0, t), t.dtype());
    const VjpTensor at = align_corners ? (n == 1 ? 0 * i : i * (2.0 / static_cast<double>(n - 1)) - 1)
                                       : (2 * i + (1 - static_cast<double>(n))) * (1 / static_cast<double>(n));
    sum = sum + at * column(k);
  }
  return in.result(sum);
}

namespace {

/// One axis of the regions: the taps of its samples [R, bins, samples], how many samples count, and which.
struct RegionAxis {
  Taps taps;
  VjpTensor samples, counts;  // [R, 1, 1]; bool [R, 1, samples], or scalar where all do
};

class Regions {
 public:
  Regions(const RoiAlignOptions& o, const VjpTensor& boxes, Location where) : o_(o), boxes_(boxes), where_(where) {}

  /// `axis`: 0 is y, 1 is x.
  RegionAxis axis(std::int64_t axis, std::int64_t size, std::int64_t bins) const {
    const auto edge = [&](std::int64_t k) {
      return vjp::reshape(select(boxes_.tensor(), 1, k, where_), {boxes_.shape()[0], 1, 1}) * o_.spatial_scale -
             (o_.aligned ? 0.5 : 0);
    };
    const VjpTensor begin = edge(1 - axis), end = edge(3 - axis);
    const VjpTensor length = o_.aligned ? end - begin : vjp::maximum(end - begin, 1), bin = length / bins;
    RegionAxis a;
    std::int64_t most = o_.sampling_ratio;
    if (o_.sampling_ratio > 0) {
      a.samples = vjp::cast(0 * begin + o_.sampling_ratio, begin.dtype());
    } else {
      a.samples = vjp::ceil(bin.tensor().detach());
      most = boxes_.shape()[0] == 0
                 ? 1
                 : std::max<std::int64_t>(max(a.samples.tensor(), {}, false, where_).item<std::int64_t>(where_), 1);
      a.counts = vjp::cast(vjp::iota({most}, 0, begin), begin.dtype()) < a.samples;
    }
    const VjpTensor i = vjp::cast(vjp::iota({bins, 1}, 0, begin), begin.dtype());
    const VjpTensor j = vjp::cast(vjp::iota({most}, 0, begin), begin.dtype());
    const VjpTensor place = begin + i * bin + (j + 0.5) * bin / vjp::maximum(a.samples, 1);
    // A sample counts up to one element outside, as if it were at the end.
    const VjpTensor inside = vjp::logical_and(place >= -1, place <= size);
    a.taps = Around({.padding = SamplePadding::border}, size)(place);
    for (Tap& tap : a.taps) tap.weight = vjp::where(inside, tap.weight, vjp::cast(0 * tap.weight, place.dtype()));
    return a;
  }

 private:
  const RoiAlignOptions& o_;
  VjpTensor boxes_;
  Location where_;
};

}  // namespace

Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& batch_indices, const RoiAlignOptions& o,
                 Location where) {
  for (const Tensor* t : {&x, &boxes, &batch_indices}) require_defined("roi_align", *t, where);
  if (x.rank() != 4 || boxes.rank() != 2 || boxes.size(1) != 4 || batch_indices.shape() != Shape{boxes.size(0)} ||
      x.size(2) * x.size(3) == 0)
    fail_shape("roi_align", "x [N, C, H, W], boxes [R, 4] and batch_indices [R] do not match",
               {{"x", x}, {"boxes", boxes}, {"indices", batch_indices}}, where);
  if (o.sampling_ratio < 0) fail_parameter("roi_align", "sampling_ratio is negative", where);
  const Shape bins = by_axis("roi_align", "output_size", o.output_size, 2, 1, where);
  const FloatingScope in("roi_align", {&x, &boxes}, where, true);
  const Regions regions(o, in(boxes), where);
  const std::int64_t h = x.size(2), w = x.size(3), r = boxes.size(0);
  const RegionAxis rows = regions.axis(0, h, bins[0]), columns = regions.axis(1, w, bins[1]);
  // [R, bins y, samples y, bins x, samples x]: what each axis says, stretched over the other.
  const auto open = [&](const VjpTensor& t, bool is_row) {
    const Shape s = t.shape();
    return vjp::reshape(t, is_row ? Shape{s[0], s[1], s[2], 1, 1} : Shape{s[0], 1, 1, s[1], s[2]});
  };
  const auto opened = [&](const Taps& taps, bool is_row) {
    Taps all;
    for (const Tap& t : taps) all.push_back({open(t.index, is_row), open(t.weight, is_row)});
    return all;
  };
  const VjpTensor image = vjp::cast(batch_indices, DType::i64);
  const VjpTensor valid = vjp::where(image < 0, image + x.size(0), image);
  const VjpTensor base = vjp::reshape(valid * (h * w), {r, 1, 1, 1, 1});
  const VjpTensor channels = channel_rows(in(x).tensor(), where);
  const std::array taps{opened(rows.taps, true), opened(columns.taps, false)};
  const std::array sizes{h, w};
  constexpr std::uint16_t kSamples = 1u << 2 | 1u << 4;
  VjpTensor counts;
  if (!rows.counts.is_scalar())
    counts = vjp::expand_dims(vjp::logical_and(open(rows.counts, true), open(columns.counts, false)), 1u << 5);
  VjpTensor y;
  if (o.mode == RegionPooling::average) {
    y = weighted_rows(channels, base, taps, sizes);
    if (!counts.is_scalar()) y = vjp::where(counts, y, 0);
    const VjpTensor total = vjp::maximum(rows.samples * columns.samples, 1);  // [R, 1, 1]
    y = vjp::reduce(Op::sum, y, kSamples, false) / vjp::expand_dims(total, 1u << 3);
  } else {
    // Of every sample the largest weighted element, as ONNX has it.
    bool is_first = true;
    for (const Tap& row : taps[0])
      for (const Tap& column : taps[1]) {
        const std::array one{Taps{row}, Taps{column}};
        const VjpTensor part = weighted_rows(channels, base, one, sizes);
        y = is_first ? part : vjp::maximum(y, part);
        is_first = false;
      }
    if (!counts.is_scalar()) y = vjp::where(counts, y, -INFINITY);
    y = vjp::reduce(Op::max, y, kSamples, false);
  }
  return astype(permute(y.tensor(), {0, 3, 1, 2}, where), x.dtype(), where);
}

Tensor deform_conv(const Tensor& x, const Tensor& weight, const Tensor& offset, const Tensor& bias, const Tensor& mask,
                   const DeformConvOptions& o, Location where) {
  for (const Tensor* t : {&x, &weight, &offset}) require_defined("deform_conv", *t, where);
  const auto fail = [&](std::string_view what) {
    fail_shape("deform_conv", what, {{"x", x}, {"weight", weight}, {"offset", offset}, {"mask", mask}, {"bias", bias}},
               where);
  };
  if (x.rank() < 3 || weight.rank() != x.rank() || offset.rank() != x.rank())
    fail("x, weight and offset must have the same number of axes");
  const std::size_t axes = x.rank() - 2u;
  const Shape given = x.shape(), filter = weight.shape(), moved = offset.shape();
  const Shape sizes{spatial(given)}, taps{spatial(filter)}, places{spatial(moved)};
  const Shape stride = by_axis("deform_conv", "stride", o.stride, axes, 1, where),
              dilation = by_axis("deform_conv", "dilation", o.dilation, axes, 1, where),
              before = by_axis("deform_conv", "padding", o.padding, axes, 0, where),
              after =
                  o.padding_end.empty() ? before : by_axis("deform_conv", "padding_end", o.padding_end, axes, 0, where);
  const std::int64_t n = given[0], c = given[1], out = filter[0], k = product(taps), p = product(places);
  const auto rank = static_cast<std::int64_t>(axes);
  if (o.groups < 1 || c != filter[1] * o.groups || out % o.groups != 0)
    fail("x must have the channels of weight times the groups, which must divide the filters");
  const std::int64_t per_offset = k * rank, d = per_offset == 0 ? 0 : moved[1] / per_offset;
  if (d < 1 || moved[1] % per_offset != 0 || c % d != 0 || moved[0] != n)
    fail("offset must have an element per axis and tap of each offset group; the groups must divide the channels");
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t reach = (taps[i] - 1) * dilation[i] + 1, length = sizes[i] + before[i] + after[i];
    if (length < reach || places[i] != (length - reach) / stride[i] + 1)
      fail(fmt::format("offset has size {} along spatial axis {}, not {}", places[i], i,
                       length < reach ? 0 : (length - reach) / stride[i] + 1));
  }
  if (mask.defined() && mask.shape() != joined({n, d * k}, places)) fail("mask must have one number per tap");
  if (bias.defined() && bias.shape() != Shape{out}) fail("bias must be a vector with one element per filter");
  const FloatingScope in("deform_conv", {&x, &weight, &offset}, where, true);

  // Places [N, D, K, P].
  const Tensor shifts = reshape(in(offset).tensor(), {n, d, k, rank, p}, where);
  std::vector<Taps> around;
  std::int64_t inner_taps = k, inner_places = p;
  for (std::size_t i = 0; i < axes; ++i) {
    inner_taps /= taps[i], inner_places /= places[i];
    const VjpTensor tap = vjp::remainder(vjp::floor_divide(vjp::iota({k, 1}, 0, shifts), inner_taps), taps[i]);
    const VjpTensor at = vjp::remainder(vjp::floor_divide(vjp::iota({p}, 0, shifts), inner_places), places[i]);
    const VjpTensor start = vjp::cast(at * stride[i] - before[i] + tap * dilation[i], shifts.dtype());
    around.push_back(Around({}, sizes[i])(start + VjpTensor(select(shifts, 3, static_cast<std::int64_t>(i), where))));
  }
  const std::int64_t elements = product(sizes);
  const VjpTensor rows =
      channel_rows(reshape(in(x).tensor(), {n * d, c / d, elements}, where), where);  // [N * D * S, C / D]
  const VjpTensor base = vjp::iota({n * d}, 0, rows) * elements;
  VjpTensor columns = weighted_rows(rows, vjp::reshape(base, {n, d, 1, 1}), around, sizes);  // [N, D, K, P, C / D]
  if (mask.defined()) columns = columns * VjpTensor(reshape(in(mask).tensor(), {n, d, k, p, 1}, where));
  // [N, groups, P, C / groups * K] times [groups, C / groups * K, O / groups].
  const Tensor wide =
      reshape(permute(columns.tensor(), {0, 3, 1, 4, 2}, where), {n, p, o.groups, filter[1] * k}, where);
  const Tensor filters = reshape(in(weight).tensor(), {o.groups, out / o.groups, filter[1] * k}, where);
  const Tensor y = matmul(permute(wide, {0, 2, 1, 3}, where), transpose(filters, 1, 2, where), where);
  VjpTensor images = reshape(transpose(y, 2, 3, where), joined({n, out}, places), where);
  if (bias.defined()) {
    Shape open{out};
    for (std::size_t i = 0; i < axes; ++i) open.push_back(1);
    images = images + vjp::reshape(in(bias), open);
  }
  return astype(images.tensor(), x.dtype(), where);
}

}  // namespace fermata
