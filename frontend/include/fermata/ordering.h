// Prefix reductions, sorting, searching, and sets.
//
// Functions with data-dependent result sizes (nonzero, unique_*) read their operand, which is a sync that stats()
// counts. With a fixed `size` they pad instead and work inside compile(fn) and vmap.
#pragma once

#include <optional>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

// One function per FERMATA_SCAN row of ir/ops/ordering.def: cumulative_sum, cumulative_prod, cumulative_max,
// cumulative_min.
//
// Shapes   those of x. The axis may be omitted only if x has one axis. With include_initial the identity of the
//          reduction comes first, which adds one element along the axis.
// DType    cumulative_sum and cumulative_prod of integers and bool give i64 (u64 for unsigned); otherwise that of x.
// Errors   IndexError for an axis out of range; ValueError without an axis unless x has one.
// Source   Python array API 2023.12, cumulative_sum.
#define FERMATA_SCAN(name, monoid, rule, doc)                                                       \
  Tensor name(const Tensor& x, std::optional<std::int64_t> axis = {}, bool include_initial = false, \
              Location where = Location::current());
#include "ir/ops.def"

/// The n-th differences along an axis: x[1:] - x[:-1], n times. `prepend` and `append`, if given, are first
/// concatenated with x along the axis.
Tensor diff(const Tensor& x, std::int64_t n = 1, std::int64_t axis = -1, const Tensor& prepend = {},
            const Tensor& append = {}, Location where = Location::current());

/// Sorts elements along an axis; NaN comes last, or first if descending.
///
/// DType    real or bool. Errors   IndexError for an axis out of range. Source   Python array API 2023.12, sort.
Tensor sort(const Tensor& x, std::int64_t axis = -1, bool descending = false, Location where = Location::current());
/// i64: the indices that sort x. Stable: equal elements keep their order.
Tensor argsort(const Tensor& x, std::int64_t axis = -1, bool descending = false, Location where = Location::current());

struct TopK {
  Tensor values, indices;
};
/// The k largest (smallest) elements along an axis, best first, and their indices. Ties go to the first; NaN is
/// largest.
///
/// Errors   ValueError unless 0 <= k <= the size of the axis.
TopK topk(const Tensor& x, std::int64_t k, std::int64_t axis = -1, bool largest = true,
          Location where = Location::current());

enum class Side { left, right };
/// i64: the positions at which to insert `values` into the ascending vector `sorted` to keep it sorted, before equal
/// elements (left) or after them. `sorter`, if given, holds the indices that sort the vector.
///
/// Shapes   sorted [n], values [...] -> [...]. DType both promoted. Source Python array API 2023.12, searchsorted.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, Side side = Side::left, const Tensor& sorter = {},
                    Location where = Location::current());

/// The number of non-zero elements over axes, i64.
Tensor count_nonzero(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false,
                     Location where = Location::current());
/// i64: the number of occurrences of 0, 1, 2, ... along the last axis. With weights, the sum of the weights of each
/// bin. The result length is the largest integer plus one, at least `minlength`. With `length` it is exactly that:
/// larger integers are ignored and nothing is read, so it works inside compile(fn) and vmap.
///
/// Shapes   x [.., n], weights the same -> [.., length].
/// DType    x integer. Floating weights keep their dtype (f16 and bf16 accumulate in f32); others accumulate in 64
///          bits.
/// Errors   ValueError FM1343 for a negative integer; ShapeError for weights of another shape.
/// Source   NumPy, bincount; `length` and leading axes as in JAX and TensorFlow.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, std::int64_t minlength = 0,
                std::optional<std::int64_t> length = {}, Location where = Location::current());
/// i64: the row-major positions of the non-zero elements. With `size`: the first `size` of them, padded with the
/// element count; nothing is read.
Tensor flatnonzero(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
/// The indices of the non-zero elements, one i64 vector per axis. With `size` as in flatnonzero; padding is the size of
/// the first axis, and 0 for the other axes.
///
/// Errors   ShapeError for a 0-d tensor. Source Python array API 2023.12, nonzero.
std::vector<Tensor> nonzero(const Tensor& x, std::optional<std::int64_t> size = {},
                            Location where = Location::current());
/// nonzero() as one tensor [n, axes] with an index per row.
Tensor argwhere(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());

struct Unique {
  Tensor values;           // sorted
  Tensor indices;          // of the first occurrences in x, row-major
  Tensor inverse_indices;  // in the shape of x: which of `values` each element is
  Tensor counts;
};
/// The distinct elements of x, sorted; complex ones by real, then imaginary part. Each NaN is distinct. With `size`:
/// that many, padded with the largest (counts 0). unique_counts and unique_inverse leave the other fields undefined.
/// Source: Python array API 2023.12, unique_all and the following three.
Unique unique_all(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
Unique unique_counts(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
Unique unique_inverse(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
Tensor unique_values(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());

/// bool, in the shape of x: whether each element is in `values` (is not, if `invert`). NaN is never in `values`.
Tensor isin(const Tensor& x, const Tensor& values, bool invert = false, Location where = Location::current());
/// Sorted set operations: elements in both, in either, in x but not in y.
Tensor intersect1d(const Tensor& x, const Tensor& y, Location where = Location::current());
Tensor union1d(const Tensor& x, const Tensor& y, Location where = Location::current());
Tensor setdiff1d(const Tensor& x, const Tensor& y, Location where = Location::current());

/// The median along an axis, or of all elements; the mean of the two middle ones for an even count. NaN if any element
/// is NaN. Integers become f32.
Tensor median(const Tensor& x, std::optional<std::int64_t> axis = {}, bool keepdims = false,
              Location where = Location::current());
/// The q-quantile, interpolated linearly between neighbors (NumPy's default).
///
/// Errors   ValueError unless 0 <= q <= 1; ShapeError if there are no elements.
Tensor quantile(const Tensor& x, double q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                Location where = Location::current());

}  // namespace fermata
