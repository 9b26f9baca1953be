// Statistics: reductions of the elements that a mask takes, histograms, order statistics, covariances, distances, sums
// over segments.
//
// Functions whose result has as many elements as the data decide (unique, unique_consecutive, segments without a count)
// read it: that is a sync, which stats() counts. Inside compile(fn) and vmap they take the number as `size` or `count`
// instead, and pad.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "fermata/integer_list.h"
#include "fermata/ordering.h"
#include "runtime/tensor.h"

namespace fermata {

// ---- Masked reductions: `taken` says which elements count, and broadcasts to x
//
// sum, prod, max, min, all, any, argmax, argmin, mean, var, stddev, logsumexp, count_nonzero with a mask after
// keepdims:
//   sum(x, {1}, false, x > 0)         mean(x, {}, false, !isnan(x))
// The mask becomes part of the fused reduction. Where no element is taken, sum gives 0, prod 1, all true, any false,
// max and min the lowest and highest number of the dtype, argmax and argmin 0, logsumexp -infinity, mean and var NaN.
// Errors   ShapeError FM1001 if the mask does not broadcast to x. Source NumPy, `where`.
#define FERMATA_REDUCE(name, rule, vjp, doc)                                                \
  Tensor name(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken, \
              Location where = Location::current());
#include "ir/ops.def"
Tensor mean(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken,
            Location where = Location::current());
Tensor var(const Tensor& x, const IntegerList& axes, bool keepdims, double correction, const Tensor& taken,
           Location where = Location::current());
Tensor stddev(const Tensor& x, const IntegerList& axes, bool keepdims, double correction, const Tensor& taken,
              Location where = Location::current());
Tensor logsumexp(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken,
                 Location where = Location::current());
Tensor count_nonzero(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken,
                     Location where = Location::current());

// ---- Histograms

struct Histogram {
  Tensor counts;  // i64, or the dtype of the weights; floating where `density`
  Tensor edges;   // one more than there are bins
};
/// How many elements lie in each of `bins` equal intervals from the least to the greatest element, or over `range`. An
/// interval has its lower edge, the last one both. `density`: shares of the total, over the width of the interval.
///
/// Shapes   any; weights that of x. DType edges of integers are f64.
/// Errors   ValueError FM1411 for no bins or a range that is not ascending; ShapeError for weights of another shape.
/// Source   NumPy, histogram.
Histogram histogram(const Tensor& x, std::int64_t bins = 10, std::optional<std::pair<double, double>> range = {},
                    const Tensor& weights = {}, bool density = false, Location where = Location::current());
/// The same between ascending edges [bins + 1].
Histogram histogram(const Tensor& x, const Tensor& edges, const Tensor& weights = {}, bool density = false,
                    Location where = Location::current());
struct HistogramOfPoints {
  Tensor counts;              // an axis for each coordinate
  std::vector<Tensor> edges;  // of each coordinate
};
/// How many points [n, d] lie in each cell of a grid: `bins` intervals for each of the d coordinates.
HistogramOfPoints histogramdd(const Tensor& points, const IntegerList& bins,
                              const std::vector<std::pair<double, double>>& ranges = {}, const Tensor& weights = {},
                              bool density = false, Location where = Location::current());

// ---- Order statistics

/// Between the two elements that a quantile lies between: on the line, the nearer one (the one of even position where
/// it lies in the middle), one of them or their mean.
enum class QuantileMethod : std::uint8_t { linear, lower, higher, nearest, midpoint };
/// The values that shares q of the elements lie below, NaN where there is one or q is outside [0, 1].
///
/// Shapes   q [..Q] -> [..Q, and the axes of x but for `axis`]; without an axis of all elements, [..Q].
/// Errors   ShapeError for no elements. Source NumPy, quantile.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                QuantileMethod method = QuantileMethod::linear, Location where = Location::current());
/// Of the elements that are not NaN; NaN where there are none.
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                   QuantileMethod method = QuantileMethod::linear, Location where = Location::current());
Tensor nanquantile(const Tensor& x, double q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                   Location where = Location::current());
Tensor nanmedian(const Tensor& x, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                 Location where = Location::current());

struct ValuesAndIndices {
  Tensor values, indices;  // i64
};
/// The k-th smallest element along an axis, counted from 1, and its position. NaN is largest. Source PyTorch, kthvalue.
///
/// Errors   ValueError FM1412 unless 1 <= k <= the size of the axis.
ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis = -1, bool keepdims = false,
                          Location where = Location::current());
/// The element that occurs most often along an axis, of several the least, and its last position. Source PyTorch, mode.
///
/// Errors   ShapeError FM1009 for no elements.
ValuesAndIndices mode(const Tensor& x, std::int64_t axis = -1, bool keepdims = false,
                      Location where = Location::current());

/// The distinct slices along an axis, in the order of their elements, with the position of the first of each, which of
/// them each slice is, and how many there are. With `size`: so many, padded with the greatest (counts 0).
/// Source   NumPy, unique with an axis.
Unique unique(const Tensor& x, std::int64_t axis, std::optional<std::int64_t> size = {},
              Location where = Location::current());
struct UniqueConsecutive {
  Tensor values, inverse_indices, counts;
};
/// The first of each run of equal elements, in their order; without an axis, of x as a vector. Source PyTorch,
/// unique_consecutive.
UniqueConsecutive unique_consecutive(const Tensor& x, std::optional<std::int64_t> axis = {},
                                     std::optional<std::int64_t> size = {}, Location where = Location::current());

// ---- Covariances and distances

/// Covariances of variables, of which x has the samples in rows.
///
/// Shapes   x [V, N], or [N] for one -> [V, V], or []; weights [N]: how often each sample counts (`repetitions`), and
///          how much (`weights`).
/// Source   NumPy, cov; the divisor is the sum of the weights less `correction`.
Tensor cov(const Tensor& x, double correction = 1, const Tensor& repetitions = {}, const Tensor& weights = {},
           Location where = Location::current());
/// Pearson's correlations, in [-1, 1].
Tensor corrcoef(const Tensor& x, Location where = Location::current());

/// Distances of each row of x to each of y, (sum of |x - y|^p)^(1 / p); p infinite: the largest difference, 0: how many
/// differ. Derivatives are 0 where rows are equal.
///
/// Shapes   x [..B, P, D], y [..B, R, D] -> [..B, P, R]. Source PyTorch, cdist.
Tensor cdist(const Tensor& x, const Tensor& y, double p = 2, Location where = Location::current());
/// Distances of all pairs of rows: [N, D] -> [N (N - 1) / 2], in the order (0, 1), (0, 2), ... Source PyTorch, pdist.
Tensor pdist(const Tensor& x, double p = 2, Location where = Location::current());

// ---- Along an axis

/// The integral of samples by the trapezoidal rule: at places x, a vector or in the shape of y, or `dx` apart.
Tensor trapezoid(const Tensor& y, const Tensor& x = {}, double dx = 1, std::int64_t axis = -1,
                 Location where = Location::current());
/// logsumexp of all elements up to each one.
Tensor cumulative_logsumexp(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());

/// y of the recurrence y[t] = decay[t] y[t - 1] + x[t] along an axis, which begins with y[0] = x[0].
///
/// Shapes   decay and x broadcast against each other -> the common shape.
Tensor linear_recurrence(const Tensor& decay, const Tensor& x, std::int64_t axis = -1,
                         Location where = Location::current());

/// What the slices of x along axis 0 with one number in `segments` come to, for numbers 0 to count - 1; by default as
/// many as the largest number needs. Segments without slices give 0, 1 for prod, and what max and min start from.
///
/// Shapes   x [N, ..A], segments [N], integer -> [count, ..A].
/// Errors   IndexError for a number out of range, when the value is computed; ShapeError FM1021 if x and segments do
/// not
///          fit.
Tensor segment_sum(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count = {},
                   Location where = Location::current());
Tensor segment_mean(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count = {},
                    Location where = Location::current());
Tensor segment_prod(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count = {},
                    Location where = Location::current());
Tensor segment_max(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count = {},
                   Location where = Location::current());
Tensor segment_min(const Tensor& x, const Tensor& segments, std::optional<std::int64_t> count = {},
                   Location where = Location::current());

}  // namespace fermata
