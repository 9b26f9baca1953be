// Prefix reductions, sorting, searching, and sets.
//
// Functions whose result has as many elements as the data decide (nonzero, unique_*) read it: that is a sync, which
// stats() counts. Inside compile(fn) and vmap they take the number of elements as `size` instead, and pad.
#pragma once

#include <optional>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

// One function per FERMATA_SCAN row of ir/ops/ordering.def: cumulative_sum, cumulative_prod, cumulative_max,
// cumulative_min.
//
// Shapes   those of x. Without an axis x must have one. With include_initial the identity of the reduction comes first,
//          so that there is one element more along the axis.
// DType    cumulative_sum and cumulative_prod of integers and bool give i64 (u64 for unsigned); else that of x.
// Errors   IndexError for an axis out of range; ValueError without an axis unless x has one.
// Source   Python array API 2023.12, cumulative_sum.
#define FERMATA_SCAN(name, monoid, rule, doc)                                                       \
  Tensor name(const Tensor& x, std::optional<std::int64_t> axis = {}, bool include_initial = false, \
              Location where = Location::current());
#include "ir/ops.def"

/// The n-th differences along an axis: x[1:] - x[:-1], n times. `prepend` and `append`, where given, are joined to x
/// along the axis first.
Tensor diff(const Tensor& x, std::int64_t n = 1, std::int64_t axis = -1, const Tensor& prepend = {},
            const Tensor& append = {}, Location where = Location::current());

/// Elements in order along an axis; NaN comes last, or first where descending.
///
/// DType    real or bool. Errors   IndexError for an axis out of range. Source   Python array API 2023.12, sort.
Tensor sort(const Tensor& x, std::int64_t axis = -1, bool descending = false, Location where = Location::current());
/// i64: the positions that sort x. Stable: equal elements stay in the order they came.
Tensor argsort(const Tensor& x, std::int64_t axis = -1, bool descending = false, Location where = Location::current());

struct TopK {
  Tensor values, indices;
};
/// The k largest (smallest) elements along an axis, best first, and their positions; of equals the first. NaN is
/// largest.
///
/// Errors   ValueError unless 0 <= k <= the size of the axis.
TopK topk(const Tensor& x, std::int64_t k, std::int64_t axis = -1, bool largest = true,
          Location where = Location::current());

enum class Side { left, right };
/// i64: where each element of `values` would keep `sorted`, a vector in ascending order, in order: before its equals
/// (left) or after them. `sorter`, where given, are the positions that sort the vector.
///
/// Shapes   sorted [n], values [...] -> [...]. DType both promoted. Source Python array API 2023.12, searchsorted.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, Side side = Side::left, const Tensor& sorter = {},
                    Location where = Location::current());

/// The number of non-zero elements over axes, i64.
Tensor count_nonzero(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false,
                     Location where = Location::current());
/// How often each of 0, 1, 2, ... occurs along the last axis, i64; with weights, which x names the places of, their
/// sums. As many results as the largest integer needs, `minlength` at least. With `length` exactly so many: larger
/// integers are left out and nothing is read, as inside compile(fn) and vmap.
///
/// Shapes   x [.., n], weights the same -> [.., length].
/// DType    x integer. Floating weights keep their dtype (f16 and bf16 are added in f32), others are added in 64 bits.
/// Errors   ValueError FM1343 for a negative integer; ShapeError for weights of another shape.
/// Source   NumPy, bincount; `length` and leading axes as in JAX and TensorFlow.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, std::int64_t minlength = 0,
                std::optional<std::int64_t> length = {}, Location where = Location::current());
/// i64: the row-major positions of the non-zero elements. With `size`: of the first so many, padded with the element
/// count; nothing is read.
Tensor flatnonzero(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
/// The positions of the non-zero elements, one i64 vector for each axis. With `size` as in flatnonzero; what pads lies
/// one beyond the first axis, at 0 of the others.
///
/// Errors   ShapeError for a 0-d tensor. Source Python array API 2023.12, nonzero.
std::vector<Tensor> nonzero(const Tensor& x, std::optional<std::int64_t> size = {},
                            Location where = Location::current());
/// The same as the rows of one tensor [n, axes].
Tensor argwhere(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());

struct Unique {
  Tensor values;           // sorted
  Tensor indices;          // of the first occurrences in x, row-major
  Tensor inverse_indices;  // in the shape of x: which of `values` each element is
  Tensor counts;
};
/// The distinct elements of x, sorted: complex ones by their real parts, and of equal ones by their imaginary parts.
/// Each NaN is distinct. With `size`: so many, padded with the largest (counts 0). Source Python array API 2023.12,
/// unique_all and the three after it, which leave the other fields undefined.
Unique unique_all(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
Unique unique_counts(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
Unique unique_inverse(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());
Tensor unique_values(const Tensor& x, std::optional<std::int64_t> size = {}, Location where = Location::current());

/// bool, in the shape of x: which elements are among those of `values` (not, where `invert`). NaN is not.
Tensor isin(const Tensor& x, const Tensor& values, bool invert = false, Location where = Location::current());
/// Sorted, each element once: what is in both, in either, in x but not in y.
Tensor intersect1d(const Tensor& x, const Tensor& y, Location where = Location::current());
Tensor union1d(const Tensor& x, const Tensor& y, Location where = Location::current());
Tensor setdiff1d(const Tensor& x, const Tensor& y, Location where = Location::current());

/// The middle element along an axis, the mean of the two middle ones of an even count; of all elements without an axis.
/// NaN where there is one. Integers become f32.
Tensor median(const Tensor& x, std::optional<std::int64_t> axis = {}, bool keepdims = false,
              Location where = Location::current());
/// The value that a share q of the elements lie below, linear between neighbors (NumPy's default).
///
/// Errors   ValueError unless 0 <= q <= 1; ShapeError for no elements.
Tensor quantile(const Tensor& x, double q, std::optional<std::int64_t> axis = {}, bool keepdims = false,
                Location where = Location::current());

}  // namespace fermata
