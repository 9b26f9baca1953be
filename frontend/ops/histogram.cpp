// Histograms, of fermata/statistics.h: the bin of each element by a search among the edges, then a count.
#include <fmt/format.h>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/statistics.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;
using Range = std::pair<double, double>;
using BinOf = VjpTensor (*)(const Tensor& x, const Tensor& edges, Location where);

Tensor floats_of(const Tensor& x, Location where) { return is_floating(x.dtype()) ? x : astype(x, DType::f64, where); }

void check_bins(std::string_view function, std::int64_t bins, const std::optional<Range>& range, const Tensor& x,
                Location where) {
  if (bins < 1)
    throw ValueError(1411,
                     format_error(1411, "ValueError", fmt::format("{}: {} bins", function, bins), describe(x), where));
  if (range && !(range->first < range->second))
    throw ValueError(1411, format_error(1411, "ValueError",
                                        fmt::format("{}: the range from {} to {} is not ascending", function,
                                                    range->first, range->second),
                                        describe(x), where));
}

/// bins + 1 edges of equal distance, over the range or from the least to the greatest element of a vector. Where all
/// elements are equal they are in the middle of an interval of length 1.
Tensor equal_edges(const Tensor& x, std::int64_t bins, const std::optional<Range>& range, Location where) {
  const VjpTensor step =
      vjp::cast(VjpTensor(iota(bins + 1, 0, device(x), where)), DType::f64) / static_cast<double>(bins);
  const bool of_elements = !range && x.size(0) != 0;
  const auto number = [&](double value) { return VjpTensor(full({}, value, DType::f64, device(x), where)); };
  VjpTensor low = number(range ? range->first : 0), high = number(range ? range->second : 1);
  if (of_elements) {
    const VjpTensor least = astype(min(x, {}, false, where), DType::f64, where),
                    most = astype(max(x, {}, false, where), DType::f64, where);
    const VjpTensor same = least == most;
    low = vjp::where(same, least - 0.5, least), high = vjp::where(same, most + 0.5, most);
  }
  // The last one is exact.
  const VjpTensor edges = vjp::where(step == 1, high, low + (high - low) * step);
  return astype(edges.tensor(), x.dtype(), where);
}

/// i64: which interval each element of a vector lies in, `bins` for those in none.
VjpTensor bin_of(const Tensor& x, const Tensor& edges, Location where) {
  const std::int64_t bins = edges.size(0) - 1;
  const VjpTensor after = searchsorted(edges, x, Side::right, {}, where);
  const VjpTensor last = slice(edges, 0, bins, bins + 1, 1, where);
  const VjpTensor at = vjp::where(VjpTensor(x) == last, bins - 1, after - 1);
  return vjp::where(logical_or(at < 0, isnan(VjpTensor(x))), bins, at);
}

/// The same where all intervals have one length: a guess by arithmetic, which is off by one at most.
VjpTensor bin_by_length(const Tensor& x, const Tensor& edges, Location where) {
  const std::int64_t bins = edges.size(0) - 1;
  const VjpTensor low = select(edges, 0, 0, where), high = select(edges, 0, bins, where);
  const VjpTensor inside = logical_and(VjpTensor(x) >= low, VjpTensor(x) <= high);
  const VjpTensor place = (vjp::where(inside, x, low) - low) * (static_cast<double>(bins) / (high - low));
  const VjpTensor guess = vjp::cast(minimum(floor(place), bins - 1), DType::i64);
  const auto edge = [&](const VjpTensor& at) { return VjpTensor(take(edges, at.tensor(), 0, where)); };
  const VjpTensor less = vjp::cast(VjpTensor(x) < edge(guess), DType::i64);
  const VjpTensor more = vjp::cast(logical_and(VjpTensor(x) >= edge(guess + 1), guess < bins - 1), DType::i64);
  return vjp::where(inside, guess - less + more, bins);
}

void check_weights(std::string_view function, const Tensor& x, const Tensor& weights, const Shape& wanted,
                   Location where) {
  if (!weights.defined() || weights.shape() == wanted) return;
  throw ShapeError(
      1011, format_error(1011, "ShapeError", fmt::format("{}: weights must have one number per element", function),
                         {{"x", to_string(x.dtype(), x.shape()), ""},
                          {"weights", to_string(weights.dtype(), weights.shape()), "should be " + to_string(wanted)}},
                         where));
}

VjpTensor widths(const Tensor& edges, Location where) {
  return VjpTensor(slice(edges, 0, 1, kNone, 1, where)) - slice(edges, 0, 0, -1, 1, where);
}

Histogram counted(BinOf bin_of_element, const Tensor& x, const Tensor& edges, const Tensor& weights, bool density,
                  Location where) {
  check_weights("histogram", x, weights, x.shape(), where);
  const Tensor elements = reshape(floats_of(x, where), -1, where);
  const Tensor bin = bin_of_element(elements, edges, where).tensor();
  const Tensor weight = weights.defined() ? reshape(weights, -1, where) : Tensor();
  const Tensor counts = bincount(bin, weight, 0, edges.size(0) - 1, where);
  if (!density) return {counts, edges};
  const Tensor floating = is_floating(counts.dtype()) ? counts : astype(counts, edges.dtype(), where);
  const VjpTensor share = VjpTensor(floating) / sum(floating, {}, false, where);
  return {(share / vjp::cast(widths(edges, where), floating.dtype())).tensor(), edges};
}

}  // namespace

Histogram histogram(const Tensor& x, std::int64_t bins, std::optional<Range> range, const Tensor& weights, bool density,
                    Location where) {
  require_defined("histogram", x, where);
  check_bins("histogram", bins, range, x, where);
  const vjp::LineGuard line(where);
  const Tensor edges = equal_edges(reshape(floats_of(x, where), -1, where), bins, range, where);
  return counted(&bin_by_length, x, edges, weights, density, where);
}

Histogram histogram(const Tensor& x, const Tensor& edges, const Tensor& weights, bool density, Location where) {
  require_defined("histogram", x, where), require_defined("histogram", edges, where);
  if (edges.rank() != 1 || edges.size(0) < 2)
    throw ShapeError(1024, format_error(1024, "ShapeError", "histogram: edges must be a vector of at least two numbers",
                                        {{"x", to_string(x.dtype(), x.shape()), ""},
                                         {"edges", to_string(edges.dtype(), edges.shape()), ""}},
                                        where));
  const vjp::LineGuard line(where);
  const DType dtype = promote(floats_of(x, where).dtype(), floats_of(edges, where).dtype()).value_or(DType::f64);
  return counted(&bin_of, astype(x, dtype, where), astype(edges, dtype, where), weights, density, where);
}

HistogramOfPoints histogramdd(const Tensor& points, const IntegerList& bins, const std::vector<Range>& ranges,
                              const Tensor& weights, bool density, Location where) {
  require_defined("histogramdd", points, where);
  const std::vector<std::int64_t> sizes(bins.begin(), bins.end());
  if (points.rank() != 2 || points.size(1) != static_cast<std::int64_t>(sizes.size()) ||
      (!ranges.empty() && ranges.size() != sizes.size()))
    throw ShapeError(1021,
                     format_error(1021, "ShapeError",
                                  fmt::format("histogramdd: points [n, d] require d bin counts, not {}", sizes.size()),
                                  {{"points", to_string(points.dtype(), points.shape()), ""}}, where));
  check_weights("histogramdd", points, weights, Shape{points.size(0)}, where);
  const vjp::LineGuard line(where);
  HistogramOfPoints result;
  VjpTensor cell, inside;
  std::int64_t cells = 1;
  Shape shape;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::optional<Range> range = ranges.empty() ? std::optional<Range>() : ranges[k];
    check_bins("histogramdd", sizes[k], range, points, where);
    const Tensor x = floats_of(select(points, 1, static_cast<std::int64_t>(k), where), where);
    result.edges.push_back(equal_edges(x, sizes[k], range, where));
    const VjpTensor bin = bin_by_length(x, result.edges.back(), where), valid = bin < sizes[k];
    cell = k == 0 ? bin : cell * sizes[k] + bin;
    inside = k == 0 ? valid : logical_and(inside, valid);
    cells *= sizes[k];
    shape.push_back(sizes[k]);
  }
  const Tensor counts = bincount(vjp::where(inside, cell, cells).tensor(), weights, 0, cells, where);
  result.counts = reshape(counts, shape, where);
  if (!density) return result;
  const DType dtype = is_floating(counts.dtype()) ? counts.dtype() : result.edges[0].dtype();
  VjpTensor shares =
      vjp::cast(VjpTensor(result.counts), dtype) / vjp::cast(VjpTensor(sum(counts, {}, false, where)), dtype);
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    Shape along(std::vector<std::int64_t>(sizes.size(), 1));
    along[k] = sizes[k];
    shares = shares / reshape(vjp::cast(widths(result.edges[k], where), dtype).tensor(), along, where);
  }
  result.counts = shares.tensor();
  return result;
}

}  // namespace fermata
