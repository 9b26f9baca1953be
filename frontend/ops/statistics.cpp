// See fermata/statistics.h: order statistics, covariances, distances and sums over segments, made of other ops.
#include "fermata/statistics.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/products.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/data_sizes.h"
#include "frontend/ops/extreme_numbers.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

Tensor flat(const Tensor& x, Location where) { return reshape(x, -1, where); }
Tensor floats_of(const Tensor& x, Location where) { return is_inexact(x.dtype()) ? x : astype(x, DType::f32, where); }
Tensor take_first(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t stop, Location where) {
  return slice(x, axis, start, stop, 1, where);
}

// ---- Order statistics

/// x with the axis that is looked along in front, all elements where there is none.
struct Lanes {
  Lanes(std::string_view function, const Tensor& x, std::optional<std::int64_t> axis, Location where) {
    require_defined(function, x, where);
    const Tensor wide = floats_of(x, where);
    if (is_complex(wide.dtype()))
      throw DTypeError(
          1101, format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(wide.dtype())),
                             describe(x), where));
    const unsigned at = axis ? normalize_axis(function, *axis, type_of(wide), where) : 0;
    elements = axis ? moveaxis(wide, static_cast<std::int64_t>(at), 0, where) : flat(wide, where);
    kept = axis ? x.shape() : Shape(std::vector<std::int64_t>(x.rank(), 1));
    if (axis) kept[at] = 1;
    if (elements.size(0) == 0)
      throw ShapeError(1027,
                       format_error(1027, "ShapeError", fmt::format("{}: no elements", function), describe(x), where));
  }
  Tensor elements;
  Shape kept;  // of x with size 1 along the axis
};

/// The elements of sorted lanes [N, ..A] at fractional positions [Q, ..A], each lane its own, or [Q, 1 ..].
Tensor between(const Tensor& sorted, const VjpTensor& position, QuantileMethod method, Location where) {
  const auto at = [&](const VjpTensor& p) {
    const Tensor index = astype(p.tensor(), DType::i64, where);
    return VjpTensor(take_along_axis(sorted, index, 0, where));
  };
  const VjpTensor below = floor(position), share = position - below;
  switch (method) {
    case QuantileMethod::lower: return at(below).tensor();
    case QuantileMethod::higher: return at(ceil(position)).tensor();
    case QuantileMethod::nearest: return at(round(position)).tensor();
    default: break;
  }
  const VjpTensor low = at(below), high = at(ceil(position));
  const VjpTensor weight = method == QuantileMethod::midpoint ? VjpTensor(vjp::where(share == 0, 0, 0.5)) : share;
  const VjpTensor in_dtype = vjp::cast(weight, sorted.dtype());
  return vjp::where(low == high, low, low + (high - low) * in_dtype).tensor();
}

Tensor quantiles(std::string_view function, const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis,
                 bool keepdims, QuantileMethod method, bool skip_nan, Location where) {
  require_defined(function, q, where);
  const Lanes lanes(function, x, axis, where);
  const vjp::LineGuard line(where);
  const Tensor sorted = sort(lanes.elements, 0, false, where);
  const unsigned rank = sorted.rank();
  const std::int64_t size = sorted.size(0);
  Shape column{q.element_count()};
  while (column.rank() < rank) column.push_back(1);
  const VjpTensor share = reshape(astype(q, DType::f64, where), column, where);
  const VjpTensor valid = logical_and(share >= 0, share <= 1);
  const VjpTensor count =
      skip_nan
          ? VjpTensor(astype(sum(logical_not(isnan(VjpTensor(sorted))).tensor(), 0, true, where), DType::f64, where))
          : VjpTensor(full({}, static_cast<double>(size), DType::f64, device(x), where));
  const VjpTensor position = vjp::where(valid, share, 0) * maximum(count - 1, 0);
  const VjpTensor picked = between(sorted, position, method, where);
  // NaN is sorted to the end; where nothing else is there, to the beginning as well.
  const VjpTensor last = take_first(sorted, 0, skip_nan ? 0 : size - 1, skip_nan ? 1 : size, where);
  const VjpTensor spoiled = logical_or(isnan(last), logical_not(valid));
  const Tensor result = vjp::where(spoiled, NAN, picked).tensor();
  Shape shape = q.shape();
  const Shape rest = sorted.shape();
  if (keepdims)
    for (const std::int64_t s : lanes.kept) shape.push_back(s);
  else
    for (unsigned i = 1; i < rest.rank(); ++i) shape.push_back(rest[i]);
  return reshape(result, shape, where);
}

}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis, bool keepdims,
                QuantileMethod method, Location where) {
  return quantiles("quantile", x, q, axis, keepdims, method, false, where);
}
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis, bool keepdims,
                   QuantileMethod method, Location where) {
  return quantiles("nanquantile", x, q, axis, keepdims, method, true, where);
}
Tensor nanquantile(const Tensor& x, double q, std::optional<std::int64_t> axis, bool keepdims, Location where) {
  require_defined("nanquantile", x, where);
  return nanquantile(x, full({}, q, DType::f64, device(x), where), axis, keepdims, QuantileMethod::linear, where);
}
Tensor nanmedian(const Tensor& x, std::optional<std::int64_t> axis, bool keepdims, Location where) {
  return nanquantile(x, 0.5, axis, keepdims, where);
}

ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis, bool keepdims, Location where) {
  require_defined("kthvalue", x, where);
  const unsigned at = normalize_axis("kthvalue", axis, type_of(x), where);
  const std::int64_t size = x.shape()[at];
  if (k < 1 || k > size)
    throw ValueError(1412, format_error(1412, "ValueError", fmt::format("kthvalue: k is {}, not 1 to {}", k, size),
                                        describe(x), where));
  const Tensor order = argsort(x, at, false, where);
  const Tensor index = slice(order, at, k - 1, k, 1, where);
  const Tensor value = gather(x, index, at, where);
  if (keepdims) return {value, index};
  return {squeeze(value, at, where), squeeze(index, at, where)};
}

ValuesAndIndices mode(const Tensor& x, std::int64_t axis, bool keepdims, Location where) {
  require_defined("mode", x, where);
  const unsigned at = normalize_axis("mode", axis, type_of(x), where);
  const std::int64_t size = x.shape()[at];
  if (size == 0) throw ShapeError(1009, format_error(1009, "ShapeError", "mode: no elements", describe(x), where));
  const vjp::LineGuard line(where);
  const Tensor order = argsort(x, at, false, where);
  const Tensor sorted = gather(x, order, at, where);
  const VjpTensor here = iota(x.shape(), at, device(x), where);
  // Each element is so many places behind the start of its run; the longest runs end farthest from their start.
  VjpTensor run = here;
  if (size > 1) {
    const VjpTensor same = VjpTensor(slice(sorted, at, 1, kNone, 1, where)) == slice(sorted, at, 0, -1, 1, where);
    const Tensor first = zeros_like(slice(order, at, 0, 1, 1, where), {}, where);
    const Tensor later = vjp::where(same, 0, slice(here.tensor(), at, 1, kNone, 1, where)).tensor();
    const Tensor start = cumulative_max(concat({first, later}, at, where), at, false, where);
    run = here - start;
  }
  const Tensor end = argmax(run.tensor(), static_cast<std::int64_t>(at), true, where);
  const Tensor index = gather(order, end, at, where), value = gather(x, index, at, where);
  if (keepdims) return {value, index};
  return {squeeze(value, at, where), squeeze(index, at, where)};
}

// ---- Distinct slices

namespace {

/// Positions of the first of each run, padded with the last one; and where the runs end.
struct Runs {
  Runs(std::string_view function, const Tensor& starts, std::optional<std::int64_t> size, Location where) {
    const std::int64_t total = starts.size(0);
    const Tensor wanted = size ? Tensor() : count_nonzero(starts, {}, false, where);
    count = size_from_data(function, starts, wanted, size, where);
    const Tensor found = flatnonzero(starts, count, where);
    first = total == 0 ? found : minimum({found, where}, total - 1);
    const Tensor end = full({std::min<std::int64_t>(1, count)}, total, DType::i64, device(starts), where);
    const Tensor next = count == 0 ? end : concat({slice(found, 0, 1, kNone, 1, where), end}, 0, where);
    counts = subtract({next, where}, found);
    group =
        total == 0 ? astype(starts, DType::i64, where) : subtract({cumulative_sum(starts, 0, false, where), where}, 1);
  }
  std::int64_t count;
  Tensor first, counts, group;
};

/// Where rows [N, M] differ from the one before.
Tensor starts_of(const Tensor& rows, Location where) {
  const std::int64_t count = rows.size(0);
  const Tensor first = full({std::min<std::int64_t>(1, count)}, true, DType::boolean, device(rows), where);
  if (count < 2) return first;
  const Tensor differs = not_equal({slice(rows, 0, 1, kNone, 1, where), where}, slice(rows, 0, 0, -1, 1, where));
  return concat({first, any(differs, 1, false, where)}, 0, where);
}

Tensor rows_of(const Tensor& front, Location where) {
  const std::int64_t count = front.size(0);
  return reshape(front, {count, count == 0 ? 0 : front.element_count() / count}, where);
}

}  // namespace

Unique unique(const Tensor& x, std::int64_t axis, std::optional<std::int64_t> size, Location where) {
  require_defined("unique", x, where);
  const unsigned at = normalize_axis("unique", axis, type_of(x), where);
  const Tensor front = moveaxis(x, static_cast<std::int64_t>(at), 0, where), rows = rows_of(front, where);
  // By the last element first: stable sorts keep that order among rows whose earlier elements are equal.
  Tensor order = iota(rows.size(0), 0, device(x), where);
  for (std::int64_t column = rows.size(1); column-- > 0;) {
    const Tensor key = take(select(rows, 1, column, where), order, 0, where);
    order = take(order, argsort(key, 0, false, where), 0, where);
  }
  const Runs runs("unique", starts_of(take(rows, order, 0, where), where), size, where);
  Unique result;
  result.indices = runs.count == 0 ? runs.first : take(order, runs.first, 0, where);
  const Tensor values = runs.count == 0 ? take_first(front, 0, 0, 0, where) : take(front, result.indices, 0, where);
  result.values = moveaxis(values, 0, static_cast<std::int64_t>(at), where);
  result.inverse_indices = index_add(zeros_like(runs.group, {}, where), order, runs.group, 0, where);
  result.counts = runs.counts;
  return result;
}

UniqueConsecutive unique_consecutive(const Tensor& x, std::optional<std::int64_t> axis,
                                     std::optional<std::int64_t> size, Location where) {
  require_defined("unique_consecutive", x, where);
  const std::int64_t at = axis ? normalize_axis("unique_consecutive", *axis, type_of(x), where) : 0;
  const Tensor front = axis ? moveaxis(x, at, 0, where) : flat(x, where);
  const Runs runs("unique_consecutive", starts_of(rows_of(front, where), where), size, where);
  const Tensor values = runs.count == 0 ? take_first(front, 0, 0, 0, where) : take(front, runs.first, 0, where);
  const Tensor group = axis ? runs.group : reshape(runs.group, x.shape(), where);
  return {axis ? moveaxis(values, 0, at, where) : values, group, runs.counts};
}

// ---- Covariances and distances

Tensor cov(const Tensor& x, double correction, const Tensor& repetitions, const Tensor& weights, Location where) {
  require_defined("cov", x, where);
  if (x.rank() < 1 || x.rank() > 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", "cov: x must be a matrix with one row per variable",
                                        describe(x), where));
  const vjp::LineGuard line(where);
  const Tensor given = floats_of(x, where);
  const DType compute = compute_dtype(given.dtype());
  const Tensor rows = astype(x.rank() == 1 ? expand_dims(given, 0, where) : given, compute, where);
  const DType real_type = real_dtype(compute);
  const std::int64_t samples = rows.size(1);
  for (const Tensor* w : {&repetitions, &weights})
    if (w->defined() && w->shape() != Shape{samples})
      throw ShapeError(
          1011, format_error(1011, "ShapeError", "cov: weights must have one number per sample",
                             {{"x", to_string(x.dtype(), x.shape()), ""},
                              {"weights", to_string(w->dtype(), w->shape()), fmt::format("should be [{}]", samples)}},
                             where));
  VjpTensor weight, total = full({}, static_cast<double>(samples), real_type, device(x), where), divisor;
  const bool weighted = repetitions.defined() || weights.defined();
  if (weighted) {
    VjpTensor product = full({samples}, 1.0, real_type, device(x), where);
    if (repetitions.defined()) product = product * astype(repetitions, real_type, where);
    if (weights.defined()) product = product * astype(weights, real_type, where);
    weight = product, total = sum(product.tensor(), {}, false, where);
  }
  if (weights.defined()) {
    const Tensor squares = (weight * VjpTensor(astype(weights, real_type, where))).tensor();
    divisor = total - VjpTensor(sum(squares, {}, false, where)) * correction / total;
  } else {
    divisor = total - correction;
  }
  const VjpTensor all = weighted ? VjpTensor(rows) * weight : VjpTensor(rows);
  const VjpTensor centered = VjpTensor(rows) - VjpTensor(sum(all.tensor(), 1, true, where)) / total;
  const VjpTensor scaled = weighted ? centered * weight : centered;
  const Tensor other = transpose(scaled.tensor(), 0, 1, where);
  const VjpTensor product = matmul(centered.tensor(), is_complex(compute) ? conj({other, where}) : other, where);
  const Tensor result = astype((product / maximum(divisor, 0)).tensor(), given.dtype(), where);
  return x.rank() == 1 ? reshape(result, Shape{}, where) : result;
}

Tensor corrcoef(const Tensor& x, Location where) {
  require_defined("corrcoef", x, where);
  const Tensor c = cov(x, 1, {}, {}, where);
  const vjp::LineGuard line(where);
  if (x.rank() == 1) return (VjpTensor(c) / c).tensor();
  const std::int64_t n = c.size(0);
  const Tensor on_diagonal = slice(reshape(c, {n * n}, where), 0, 0, kNone, n + 1, where);
  const VjpTensor deviation = sqrt(VjpTensor(is_complex(c.dtype()) ? real({on_diagonal, where}) : on_diagonal));
  const VjpTensor column = expand_dims(deviation.tensor(), 1, where), row = expand_dims(deviation.tensor(), 0, where);
  const VjpTensor ratio = VjpTensor(c) / column / row;
  return is_complex(c.dtype()) ? ratio.tensor() : maximum(minimum(ratio, 1), -1).tensor();
}

namespace {

/// (sum of |d|^p)^(1 / p) over an axis, with derivatives of 0 where all is 0.
Tensor lengths(const Tensor& difference, double p, std::int64_t axis, Location where) {
  const VjpTensor d = difference;
  const auto total = [&](const VjpTensor& x) { return VjpTensor(sum(x.tensor(), axis, false, where)); };
  if (p == 0) return total(vjp::cast(VjpTensor(not_equal(d, 0)), difference.dtype())).tensor();
  if (p == 1) return total(abs(d)).tensor();
  if (p == HUGE_VAL) return max(abs(d).tensor(), axis, false, where);
  const VjpTensor powers = total(
      p == 2 ? square(d) : pow(vjp::where(d == 0, 1, abs(d)), p) * vjp::cast(not_equal(d, 0), difference.dtype()));
  const VjpTensor none = powers == 0, safe = vjp::where(none, 1, powers);
  return vjp::where(none, 0, p == 2 ? sqrt(safe) : pow(safe, 1 / p)).tensor();
}

void check_order(std::string_view function, double p, const Tensor& x, Location where) {
  if (p >= 0) return;
  throw ValueError(1413, format_error(1413, "ValueError", fmt::format("{}: unsupported order {}", function, p),
                                      describe(x), where, "p must be 0 or more, or infinite"));
}

}  // namespace

Tensor cdist(const Tensor& x, const Tensor& y, double p, Location where) {
  require_defined("cdist", x, where), require_defined("cdist", y, where);
  check_order("cdist", p, x, where);
  if (x.rank() < 2 || y.rank() < 2 || x.size(-1) != y.size(-1))
    throw ShapeError(
        1004,
        format_error(1004, "ShapeError", "cdist: x [.., P, D] and y [.., R, D] do not match",
                     {{"x", to_string(x.dtype(), x.shape()), ""}, {"y", to_string(y.dtype(), y.shape()), ""}}, where));
  const vjp::LineGuard line(where);
  const Tensor points = floats_of(x, where), others = floats_of(y, where);
  const std::int64_t coordinates = x.size(-1);
  // Few coordinates are added up for a vector of points at a time, which have to lie side by side.
  constexpr std::int64_t kFewCoordinates = 64;
  if (coordinates > 0 && coordinates <= kFewCoordinates) {
    const Tensor first = moveaxis(points, -1, -2, where), second = copy(moveaxis(others, -1, -2, where), where);
    const VjpTensor difference = VjpTensor(expand_dims(first, -1, where)) - expand_dims(second, -2, where);
    return lengths(difference.tensor(), p, -3, where);
  }
  const VjpTensor difference = VjpTensor(expand_dims(points, -2, where)) - expand_dims(others, -3, where);
  if (coordinates == 0) return sum(difference.tensor(), -1, false, where);
  return lengths(difference.tensor(), p, -1, where);
}

Tensor pdist(const Tensor& x, double p, Location where) {
  require_defined("pdist", x, where);
  check_order("pdist", p, x, where);
  if (x.rank() != 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", "pdist: a matrix must have two axes", describe(x), where));
  const vjp::LineGuard line(where);
  const std::int64_t n = x.size(0), pairs = n * (n - 1) / 2;
  const Tensor rows = floats_of(x, where);
  if (pairs == 0) return sum(take_first(rows, 0, 0, 0, where), -1, false, where);
  // Pair k is the k-th element above the diagonal of the distances of all pairs, which lie in order.
  const VjpTensor line_number = iota({n, n}, 0, device(x), where), column = iota({n, n}, 1, device(x), where);
  const Tensor place = flatnonzero((column > line_number).tensor(), pairs, where);
  return take(reshape(cdist(rows, rows, p, where), -1, where), place, 0, where);
}

// ---- Along an axis

Tensor trapezoid(const Tensor& y, const Tensor& x, double dx, std::int64_t axis, Location where) {
  require_defined("trapezoid", y, where);
  const unsigned at = normalize_axis("trapezoid", axis, type_of(y), where);
  const std::int64_t size = y.shape()[at];
  if (x.defined() && x.shape() != y.shape() && x.shape() != Shape{size})
    throw ShapeError(
        1021,
        format_error(1021, "ShapeError", "trapezoid: x must have one position per sample",
                     {{"y", to_string(y.dtype(), y.shape()), ""},
                      {"x", to_string(x.dtype(), x.shape()), fmt::format("should be [{}] or the shape of y", size)}},
                     where));
  const vjp::LineGuard line(where);
  const Tensor samples = floats_of(y, where);
  if (size == 0) return sum(samples, static_cast<std::int64_t>(at), false, where);
  const auto later = [&](const Tensor& t, std::int64_t along) { return slice(t, along, 1, kNone, 1, where); };
  const auto earlier = [&](const Tensor& t, std::int64_t along) { return slice(t, along, 0, size - 1, 1, where); };
  const VjpTensor mean = (VjpTensor(later(samples, at)) + earlier(samples, at)) * 0.5;
  if (!x.defined()) return (VjpTensor(sum(mean.tensor(), static_cast<std::int64_t>(at), false, where)) * dx).tensor();
  const bool shared = x.shape() != y.shape();
  const Tensor places = floats_of(x, where);
  VjpTensor step = VjpTensor(later(places, shared ? 0 : at)) - earlier(places, shared ? 0 : at);
  if (shared) {
    Shape column{size - 1};
    while (column.rank() < y.rank() - at) column.push_back(1);
    step = reshape(step.tensor(), column, where);
  }
  return sum((mean * step).tensor(), static_cast<std::int64_t>(at), false, where);
}

namespace {

struct Segments {
  Segments(std::string_view function, const Tensor& x, const Tensor& numbers, std::optional<std::int64_t> wanted,
           Location where) {
    require_defined(function, x, where), require_defined(function, numbers, where);
    if (x.rank() == 0 || numbers.shape() != Shape{x.size(0)})
      throw ShapeError(
          1021, format_error(1021, "ShapeError", fmt::format("{}: segments must have one number per slice", function),
                             {{"x", to_string(x.dtype(), x.shape()), ""},
                              {"segments", to_string(numbers.dtype(), numbers.shape()), ""}},
                             where));
    count = wanted.value_or(0);
    if (!wanted && x.size(0) != 0) {
      const Tensor most = astype(max(numbers, {}, false, where), DType::i64, where);
      count = size_from_data(function, x, most, {}, where, "count") + 1;
    }
    shape = x.shape();
    shape[0] = count;
  }
  std::int64_t count;
  Shape shape;
};

Tensor reduced_segments(std::string_view function, const Tensor& x, const Tensor& numbers,
                        std::optional<std::int64_t> wanted, ScatterReduction reduction, Scalar start, Location where) {
  const Segments segments(function, x, numbers, wanted, where);
  Shape column{x.size(0)};
  while (column.rank() < x.rank()) column.push_back(1);
  const Tensor index = broadcast_to(reshape(astype(numbers, DType::i64, where), column, where), x.shape(), where);
  return scatter_reduce(full(segments.shape, start, x.dtype(), device(x), where), index, x, 0, reduction, true, where);
}

}  // namespace

Tensor segment_sum(const Tensor& x, const Tensor& numbers, std::optional<std::int64_t> count, Location where) {
  return reduced_segments("segment_sum", x, numbers, count, ScatterReduction::sum, 0, where);
}

Tensor segment_mean(const Tensor& x, const Tensor& numbers, std::optional<std::int64_t> count, Location where) {
  const Segments segments("segment_mean", x, numbers, count, where);
  const vjp::LineGuard line(where);
  const Tensor given = floats_of(x, where), wide = astype(given, compute_dtype(given.dtype()), where);
  const VjpTensor total = segment_sum(wide, numbers, segments.count, where);
  const VjpTensor elements = bincount(numbers, {}, 0, segments.count, where);
  Shape column{segments.count};
  while (column.rank() < x.rank()) column.push_back(1);
  const VjpTensor divisor = reshape(maximum(elements, 1).tensor(), column, where);
  return astype((total / vjp::cast(divisor, real_dtype(wide.dtype()))).tensor(), given.dtype(), where);
}

Tensor segment_prod(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count, Location where) {
  return reduced_segments("segment_prod", x, segments, count, ScatterReduction::prod, 1, where);
}
Tensor segment_max(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count, Location where) {
  require_defined("segment_max", x, where);
  return reduced_segments("segment_max", x, segments, count, ScatterReduction::amax, extreme_number(x.dtype(), false),
                          where);
}
Tensor segment_min(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count, Location where) {
  require_defined("segment_min", x, where);
  return reduced_segments("segment_min", x, segments, count, ScatterReduction::amin, extreme_number(x.dtype(), true),
                          where);
}

}  // namespace fermata
