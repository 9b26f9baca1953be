// Statistics: masked reductions, histograms, order statistics, covariances, distances, and segment reductions.
//
// Functions with data-dependent result sizes (unique, unique_consecutive, segments without a count) read their operand,
// which is a sync that stats() counts. With a fixed `size` or `count` they pad instead and work inside compile(fn) and
// vmap.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "fermata/integer_list.h"
#include "fermata/ordering.h"
#include "runtime/tensor.h"

namespace fermata {

// ---- Masked reductions: `taken` selects the elements, and broadcasts to x
//
// sum, prod, max, min, all, any, argmax, argmin, mean, var, stddev, logsumexp, count_nonzero take a mask after
// keepdims:
//   sum(x, {1}, false, x > 0)         mean(x, {}, false, !isnan(x))
// The mask is fused into the reduction. If no element is taken, sum gives 0, prod 1, all true, any false, max and min
// the lowest and highest number of the dtype, argmax and argmin 0, logsumexp -infinity, mean and var NaN.
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
  Tensor counts;  // i64, or the dtype of the weights; floating if `density`
  Tensor edges;   // [bins + 1]
};
/// Counts the elements in `bins` equal intervals from the smallest to the largest element, or over `range`. Intervals
/// include their lower edge; the last one includes both. `density` divides by the total and the width of the interval.
///
/// Shapes   any; weights as x. DType edges of integers are f64.
/// Errors   ValueError FM1411 for no bins or a range that is not ascending; ShapeError for weights of another shape.
/// Source   NumPy, histogram.
Histogram histogram(const Tensor& x, std::int64_t bins = 10, std::optional<std::pair<double, double>> range = {},
                    const Tensor& weights = {}, bool density = false, Location where = Location::current());
/// histogram() with given ascending edges [bins + 1].
Histogram histogram(const Tensor& x, const Tensor& edges, const Tensor& weights = {}, bool density = false,
                    Location where = Location::current());
struct HistogramOfPoints {
  Tensor counts;              // one axis per coordinate
  std::vector<Tensor> edges;  // per coordinate
};
/// Counts points [n, d] in the cells of a grid, with `bins` intervals per coordinate.
HistogramOfPoints histogramdd(const Tensor& points, const IntegerList& bins,
                              const std::vector<std::pair<double, double>>& ranges = {}, const Tensor& weights = {},
                              bool density = false, Location where = Location::current());

// ---- Order statistics

/// How to choose a value if a quantile falls between two elements: linear interpolation, the lower, the higher, the
/// nearest (of even index in a tie), or the midpoint.
enum class QuantileMethod : std::uint8_t { linear, lower, higher, nearest, midpoint };
/// The q-quantiles; NaN if an element is NaN or q is outside [0, 1].
///
/// Shapes   q [..Q] -> [..Q, axes of x without `axis`]; without an axis, over all elements, [..Q].
/// Errors   ShapeError if there are no elements. Source NumPy, quantile.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                QuantileMethod method = QuantileMethod::linear, Location where = Location::current());
/// Ignore NaN elements; NaN if there are no others.
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                   QuantileMethod method = QuantileMethod::linear, Location where = Location::current());
Tensor nanquantile(const Tensor& x, double q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                   Location where = Location::current());
Tensor nanmedian(const Tensor& x, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                 Location where = Location::current());

struct ValuesAndIndices {
  Tensor values, indices;  // i64
};
/// The k-th smallest element along an axis, counted from 1, and its index. NaN is largest. Source PyTorch, kthvalue.
///
/// Errors   ValueError FM1412 unless 1 <= k <= the size of the axis.
ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis = -1, bool keepdims = false,
                          Location where = Location::current());
/// The most frequent element along an axis (the smallest of several), and its last index. Source PyTorch, mode.
///
/// Errors   ShapeError FM1009 if there are no elements.
ValuesAndIndices mode(const Tensor& x, std::int64_t axis = -1, bool keepdims = false,
                      Location where = Location::current());

/// The distinct slices along an axis in lexicographic order, with the index of the first occurrence, the inverse
/// indices and the counts. With `size`: that many, padded with the greatest (counts 0).
/// Source   NumPy, unique with an axis.
Unique unique(const Tensor& x, std::int64_t axis, std::optional<std::int64_t> size = {},
              Location where = Location::current());
struct UniqueConsecutive {
  Tensor values, inverse_indices, counts;
};
/// The first element of each run of equal elements, in order; without an axis, of the flattened x. Source PyTorch,
/// unique_consecutive.
UniqueConsecutive unique_consecutive(const Tensor& x, std::optional<std::int64_t> axis = {},
                                     std::optional<std::int64_t> size = {}, Location where = Location::current());

// ---- Covariances and distances

/// Covariance matrix; each row of x holds the samples of one variable.
///
/// Shapes   x [V, N], or [N] for one variable -> [V, V], or []; repetitions [N] are integer counts and weights [N]
///          relative weights of the samples.
/// Source   NumPy, cov; the divisor is the sum of the weights minus `correction`.
Tensor cov(const Tensor& x, double correction = 1, const Tensor& repetitions = {}, const Tensor& weights = {},
           Location where = Location::current());
/// Pearson's correlations, in [-1, 1].
Tensor corrcoef(const Tensor& x, Location where = Location::current());

/// Distances between the rows of x and those of y, (sum of |x - y|^p)^(1 / p); p infinite: the largest difference, 0:
/// the number of differences. Derivatives are 0 where rows are equal.
///
/// Shapes   x [..B, P, D], y [..B, R, D] -> [..B, P, R]. Source PyTorch, cdist.
Tensor cdist(const Tensor& x, const Tensor& y, double p = 2, Location where = Location::current());
/// Distances between all pairs of rows: [N, D] -> [N (N - 1) / 2], in the order (0, 1), (0, 2), ... Source PyTorch,
/// pdist.
Tensor pdist(const Tensor& x, double p = 2, Location where = Location::current());

// ---- Along an axis

/// Integrates samples by the trapezoidal rule, at positions x (a vector, or of the shape of y) or `dx` apart.
Tensor trapezoid(const Tensor& y, const Tensor& x = {}, double dx = 1, std::int64_t axis = -1,
                 Location where = Location::current());
/// Cumulative logsumexp.
Tensor cumulative_logsumexp(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());

/// The linear recurrence y[t] = decay[t] y[t - 1] + x[t] along an axis, with y[0] = x[0].
///
/// Shapes   decay and x broadcast against each other -> the common shape.
Tensor linear_recurrence(const Tensor& decay, const Tensor& x, std::int64_t axis = -1,
                         Location where = Location::current());

/// Reduces the slices of x along axis 0 that have the same number in `segments`, for segments 0 to count - 1. The
/// default count is the largest number plus one. Empty segments give 0, 1 for prod, and the identity for max and min.
///
/// Shapes   x [N, ..A], segments [N], integer -> [count, ..A].
/// Errors   IndexError for a number out of range, when the value is computed; ShapeError FM1021 if x and segments do
///          not match.
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
