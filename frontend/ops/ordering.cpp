// See fermata/ordering.h: the ops of ir/ops/ordering.def as functions, and what is made of them.
#include "fermata/ordering.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/data_sizes.h"
#include "frontend/ops/extreme_numbers.h"
#include "frontend/ops/op_rules.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

std::int64_t size_from_data(std::string_view function, const Tensor& x, const Tensor& count,
                            std::optional<std::int64_t> size, Location where, std::string_view argument) {
  if (size) return *size;
  const bool batched = is_batched(x);
  if (batched || in_capture_scope())
    throw UnsupportedError(
        2022,
        format_error(2022, "UnsupportedError",
                     fmt::format("{}: the size of the result depends on values, which are not available inside {}",
                                 function, batched ? "vmap" : "a compiled function"),
                     describe(x), where,
                     fmt::format("pass the number of elements as `{}`; the result is padded to it", argument)));
  return count.item<std::int64_t>(where);
}

namespace {

Tensor flat(const Tensor& x, Location where) { return reshape(x, -1, where); }

/// What a reduction starts from, with size 1 along the axis.
Tensor identity_of(Op reduction, const Tensor& like, std::int64_t axis, Location where) {
  Shape shape = like.shape();
  shape[static_cast<std::size_t>(axis)] = 1;
  const DType t = like.dtype();
  const Scalar value = reduction == Op::sum    ? Scalar(0)
                       : reduction == Op::prod ? Scalar(1)
                                               : extreme_number(t, reduction == Op::min);
  return full(shape, value, t, device(like), where);
}

Tensor scan(Op op, Op reduction, const Tensor& given, std::optional<std::int64_t> axis, bool include_initial,
            Location where) {
  require_defined(name(op), given, where);
  if (!axis && given.rank() != 1)
    throw ValueError(1313, format_error(1313, "ValueError",
                                        fmt::format("{}: a tensor of {} axes requires an axis", name(op), given.rank()),
                                        describe(given), where));
  const auto accepted = apply_rule(info(reduction).rule, given.dtype());
  const Tensor x = accepted ? astype(given, accepted->operand, where) : given;
  const unsigned at = normalize_axis(name(op), axis.value_or(0), type_of(x), where);
  const Tensor scanned = general_call(op, ops::Scan{.axis = {at}}, {&x, 1}, where);
  return include_initial ? concat({identity_of(reduction, scanned, at, where), scanned}, at, where) : scanned;
}

/// The positions that sort a vector: of complex numbers by their real parts, and of equal ones by their imaginary
/// parts.
Tensor order_of(const Tensor& x, Location where) {
  if (!is_complex(x)) return argsort(x, 0, false, where);
  const Tensor by_imaginary = argsort(imag({x, where}), 0, false, where);
  return take(by_imaginary, argsort(take(real({x, where}), by_imaginary, 0, where), 0, false, where), 0, where);
}

/// Sorted elements as a vector, and which of them differ from the one before.
struct SortedVector {
  SortedVector(const Tensor& x, const Tensor& order, Location where)
      : elements(order.defined() ? take(flat(x, where), order, 0, where) : sort(flat(x, where), 0, false, where)),
        starts(full({std::min<std::int64_t>(1, elements.size(0))}, true, DType::boolean, device(x), where)) {
    if (elements.size(0) > 1)
      starts = concat(
          {starts, not_equal({slice(elements, 0, 1, kNone, 1, where), where}, slice(elements, 0, 0, -1, 1, where))}, 0,
          where);
  }
  Tensor elements, starts;
};

/// x at positions, the last element for those beyond.
Tensor take_padded(const Tensor& x, const Tensor& positions, Location where) {
  if (x.size(0) == 0) return x;
  return take(x, minimum({positions, where}, x.size(0) - 1), 0, where);
}

enum class UniqueParts : std::uint8_t { values = 0, counts = 1, inverse = 2, indices = 4, all = 7 };
bool has(UniqueParts parts, UniqueParts part) {
  return (static_cast<unsigned>(parts) & static_cast<unsigned>(part)) != 0;
}

Unique unique(std::string_view function, const Tensor& x, UniqueParts parts, std::optional<std::int64_t> size,
              Location where) {
  require_defined(function, x, where);
  const bool ordered = has(parts, UniqueParts::inverse) || has(parts, UniqueParts::indices) || is_complex(x);
  const Tensor order = ordered ? order_of(flat(x, where), where) : Tensor();
  const SortedVector sorted(x, order, where);
  const std::int64_t total = sorted.elements.size(0);
  const std::int64_t count =
      size_from_data(function, x, size ? Tensor() : count_nonzero(sorted.starts, {}, false, where), size, where);
  const Tensor first = flatnonzero(sorted.starts, count, where);
  Unique result;
  result.values = take_padded(sorted.elements, first, where);
  if (has(parts, UniqueParts::indices)) result.indices = take_padded(order, first, where);
  if (has(parts, UniqueParts::counts)) {
    const Tensor end = full({std::min<std::int64_t>(1, count)}, total, DType::i64, device(x), where);
    const Tensor next = count == 0 ? end : concat({slice(first, 0, 1, kNone, 1, where), end}, 0, where);
    result.counts = subtract({next, where}, first);
  }
  if (has(parts, UniqueParts::inverse)) {
    const Tensor group = total == 0 ? astype(sorted.starts, DType::i64, where)
                                    : subtract({cumulative_sum(sorted.starts, 0, false, where), where}, 1);
    // Each position occurs once in `order`: adding to zeros puts every group where its element came from.
    const Tensor inverse = index_add(zeros_like(group, {}, where), order, group, 0, where);
    result.inverse_indices = reshape(inverse, x.shape(), where);
  }
  return result;
}

Tensor floats_of(const Tensor& x, Location where) { return is_floating(x.dtype()) ? x : astype(x, DType::f32, where); }

}  // namespace

#define FERMATA_SCAN(name, monoid, rule, doc)                                                            \
  Tensor name(const Tensor& x, std::optional<std::int64_t> axis, bool include_initial, Location where) { \
    return scan(Op::name, Op::monoid, x, axis, include_initial, where);                                  \
  }
#include "ir/ops.def"

Tensor diff(const Tensor& given, std::int64_t n, std::int64_t axis, const Tensor& prepend, const Tensor& append,
            Location where) {
  require_defined("diff", given, where);
  const unsigned at = normalize_axis("diff", axis, type_of(given), where);
  std::vector<Tensor> parts{given};
  if (prepend.defined()) parts.insert(parts.begin(), prepend);
  if (append.defined()) parts.push_back(append);
  const Tensor x = parts.size() == 1 ? given : concat(parts, at, where);
  if (n < 0)
    throw ValueError(1314,
                     format_error(1314, "ValueError", fmt::format("diff: {} differences", n), describe(x), where));
  Tensor result = x;
  for (std::int64_t i = 0; i < n; ++i) {
    const Tensor after = slice(result, at, 1, kNone, 1, where), before = slice(result, at, 0, -1, 1, where);
    result = x.dtype() == DType::boolean ? not_equal({after, where}, before) : subtract({after, where}, before);
  }
  return result;
}

Tensor sort(const Tensor& x, std::int64_t axis, bool descending, Location where) {
  require_defined("sort", x, where);
  const unsigned at = normalize_axis("sort", axis, type_of(x), where);
  return general_call<Op::sort>({.axis = {at}, .descending = {descending}}, {&x, 1}, where);
}
Tensor argsort(const Tensor& x, std::int64_t axis, bool descending, Location where) {
  require_defined("argsort", x, where);
  const unsigned at = normalize_axis("argsort", axis, type_of(x), where);
  return general_call<Op::argsort>({.axis = {at}, .descending = {descending}}, {&x, 1}, where);
}

TopK topk(const Tensor& x, std::int64_t k, std::int64_t axis, bool largest, Location where) {
  require_defined("topk", x, where);
  const unsigned at = normalize_axis("top_k_indices", axis, type_of(x), where);
  const Tensor indices =
      general_call<Op::top_k_indices>({.axis = {at}, .k = {k}, .largest = {largest}}, {&x, 1}, where);
  return {gather(x, indices, axis, where), indices};
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, Side side, const Tensor& sorter, Location where) {
  require_defined("searchsorted", sorted, where), require_defined("searchsorted", values, where);
  const std::optional<DType> common = promote(sorted.dtype(), values.dtype());
  const Tensor vector = sorter.defined() ? take(sorted, sorter, 0, where) : sorted;
  const Tensor operands[] = {common ? astype(vector, *common, where) : vector,
                             common ? astype(values, *common, where) : values};
  return general_call<Op::searchsorted>({.right = {side == Side::right}}, operands, where);
}

Tensor count_nonzero(const Tensor& x, const IntegerList& axes, bool keepdims, Location where) {
  require_defined("count_nonzero", x, where);
  return sum(astype(x, DType::boolean, where), axes, keepdims, where);
}

Tensor bincount(const Tensor& x, const Tensor& weights, std::int64_t minlength, std::optional<std::int64_t> length,
                Location where) {
  require_defined("bincount", x, where);
  std::vector<Tensor> operands{x};
  if (weights.defined()) {
    const auto added_in = apply_rule(info(Op::sum).rule, weights.dtype());
    operands.push_back(added_in ? astype(weights, added_in->operand, where) : weights);
  }
  std::optional<std::int64_t> wanted = length;
  if (!length && (element_count(x.shape()) == 0 || !is_integer(x.dtype())))
    wanted = minlength;  // the op refuses floats
  if (!wanted) {
    const Tensor most = astype(max(x, {}, false, where), DType::i64, where);
    const std::int64_t largest = size_from_data("bincount", x, most, {}, where, "length");
    const bool is_beyond = largest == INT64_MAX || (largest < 0 && x.dtype() == DType::u64);
    wanted = is_beyond ? INT64_MAX : std::max(largest + 1, minlength);  // so many bins are an error
  }
  return general_call<Op::bincount>({.length = {*wanted}}, operands, where);
}

Tensor flatnonzero(const Tensor& given, std::optional<std::int64_t> size, Location where) {
  require_defined("flatnonzero", given, where);
  const Tensor x = is_complex(given) ? not_equal({given, where}, 0) : given;
  const Tensor count = size ? Tensor() : count_nonzero(x, {}, false, where);
  const std::int64_t wanted = size_from_data("flatnonzero", x, count, size, where);
  check_shape("flatnonzero", {&wanted, 1}, DType::i64, where);
  return general_call<Op::flatnonzero>({.size = {{&wanted, 1}}}, {&x, 1}, where, DType::i64);
}

std::vector<Tensor> nonzero(const Tensor& x, std::optional<std::int64_t> size, Location where) {
  require_defined("nonzero", x, where);
  if (x.rank() == 0)
    throw ShapeError(1026, format_error(1026, "ShapeError", "nonzero: a 0-d tensor has no axes", describe(x), where,
                                        "use flatnonzero"));
  const Tensor count = size ? Tensor() : count_nonzero(x, {}, false, where);
  Tensor rest = flatnonzero(x, size_from_data("nonzero", x, count, size, where), where);
  std::vector<Tensor> positions(x.rank());
  const Shape shape = x.shape();
  for (unsigned axis = x.rank(); axis-- > 0;) {
    positions[axis] = axis == 0 ? rest : remainder({rest, where}, shape[axis]);
    if (axis > 0) rest = floor_divide({rest, where}, shape[axis]);
  }
  return positions;
}

Tensor argwhere(const Tensor& x, std::optional<std::int64_t> size, Location where) {
  const std::vector<Tensor> positions = nonzero(x, size, where);
  return stack(positions, 1, where);
}

Unique unique_all(const Tensor& x, std::optional<std::int64_t> size, Location where) {
  return unique("unique_all", x, UniqueParts::all, size, where);
}
Unique unique_counts(const Tensor& x, std::optional<std::int64_t> size, Location where) {
  return unique("unique_counts", x, UniqueParts::counts, size, where);
}
Unique unique_inverse(const Tensor& x, std::optional<std::int64_t> size, Location where) {
  return unique("unique_inverse", x, UniqueParts::inverse, size, where);
}
Tensor unique_values(const Tensor& x, std::optional<std::int64_t> size, Location where) {
  return unique("unique_values", x, UniqueParts::values, size, where).values;
}

namespace {

/// isin of what cannot be searched: equal elements of both get one number.
Tensor isin_by_groups(const Tensor& x, const Tensor& values, bool invert, Location where) {
  const std::int64_t count = x.element_count(), total = count + values.element_count();
  const Tensor both = concat({flat(x, where), flat(values, where)}, 0, where);
  const Tensor group = unique("isin", both, UniqueParts::inverse, total, where).inverse_indices;
  const Tensor of_values = slice(group, 0, count, kNone, 1, where);
  const Tensor found =
      scatter(full({total}, false, DType::boolean, device(x), where), of_values, Scalar(true), 0, where);
  const Tensor result = reshape(take(found, slice(group, 0, 0, count, 1, where), 0, where), x.shape(), where);
  return invert ? logical_not({result, where}) : result;
}

}  // namespace

Tensor isin(const Tensor& x, const Tensor& values, bool invert, Location where) {
  require_defined("isin", x, where), require_defined("isin", values, where);
  if (values.element_count() == 0) return full(x.shape(), invert, DType::boolean, device(x), where);
  if (is_complex(x) || is_complex(values)) return isin_by_groups(x, values, invert, where);
  const Tensor sorted = sort(flat(values, where), 0, false, where);
  const Tensor at = searchsorted(sorted, x, Side::left, {}, where);
  const Tensor found = equal({take_padded(sorted, at, where), where}, x);
  return invert ? logical_not({found, where}) : found;
}

Tensor intersect1d(const Tensor& x, const Tensor& y, Location where) {
  const Tensor values = unique_values(x, {}, where);
  const Tensor common = take(values, flatnonzero(isin(values, y, false, where), {}, where), 0, where);
  const std::optional<DType> dtype = promote(x.dtype(), y.dtype());
  return dtype ? astype(common, *dtype, where) : common;
}
Tensor union1d(const Tensor& x, const Tensor& y, Location where) {
  require_defined("union1d", x, where), require_defined("union1d", y, where);
  return unique_values(concat({flat(x, where), flat(y, where)}, 0, where), {}, where);
}
Tensor setdiff1d(const Tensor& x, const Tensor& y, Location where) {
  const Tensor values = unique_values(x, {}, where);
  return take(values, flatnonzero(isin(values, y, true, where), {}, where), 0, where);
}

Tensor quantile(const Tensor& x, double q, std::optional<std::int64_t> axis, bool keepdims, Location where) {
  require_defined("quantile", x, where);
  if (!(q >= 0 && q <= 1))
    throw ValueError(1315, format_error(1315, "ValueError", fmt::format("quantile: q is {}, not between 0 and 1", q),
                                        describe(x), where));
  const Tensor values = axis ? floats_of(x, where) : flat(floats_of(x, where), where);
  const unsigned at = normalize_axis("quantile", axis.value_or(0), type_of(values), where);
  const std::int64_t count = values.shape()[at];
  if (count == 0) throw ShapeError(1027, format_error(1027, "ShapeError", "quantile: no elements", describe(x), where));
  const Tensor sorted = sort(values, at, false, where);
  const double position = q * static_cast<double>(count - 1);
  const auto below = static_cast<std::int64_t>(std::floor(position));
  const auto pick = [&](std::int64_t i) { return slice(sorted, at, i, i + 1, 1, where); };
  const Tensor low = pick(below), high = pick(std::min(below + 1, count - 1)), last = pick(count - 1);
  const double share = position - static_cast<double>(below);
  Tensor result = low;
  if (share != 0)  // where both are infinite there is nothing between them
    result = fermata::where({equal({low, where}, high), where}, low,
                            add({low, where}, multiply({subtract({high, where}, low), where}, share)));
  result = fermata::where({isnan({last, where}), where}, last, result);  // NaN is sorted to the end
  if (axis) return keepdims ? result : squeeze(result, at, where);
  return keepdims ? reshape(result, Shape(std::vector<std::int64_t>(x.rank(), 1)), where)
                  : reshape(result, Shape{}, where);
}

Tensor median(const Tensor& x, std::optional<std::int64_t> axis, bool keepdims, Location where) {
  return quantile(x, 0.5, axis, keepdims, where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

std::int64_t axis_of(const VjpArgs& args) { return args.attributes_of<ops::Scan>().axis.value; }

VjpTensor along(Op op, const VjpTensor& x, std::int64_t axis) {
  return call(op, ops::Scan{.axis = {axis}}, {&x.tensor(), 1});
}

/// Zeros of `shape` with the values added at positions along an axis.
VjpTensor scattered(const Shape& shape, const VjpTensor& index, const VjpTensor& values, std::int64_t axis) {
  const std::array tensors{full(0, {values.dtype(), shape}, values).tensor(), index.tensor(), values.tensor()};
  return call<Op::scatter_add>({.axis = {axis}}, tensors);
}

VjpTensor reversed(const VjpTensor& x, std::int64_t axis) {
  Shape starts, steps;
  for (unsigned i = 0; i < x.shape().rank(); ++i) {
    const bool turned = static_cast<std::int64_t>(i) == axis && x.shape()[i] > 0;
    starts.push_back(turned ? x.shape()[i] - 1 : 0), steps.push_back(turned ? -1 : 1);
  }
  return slice(x, starts, steps, x.shape());
}
/// Sums of all elements from each one on.
VjpTensor sum_from_here(const VjpTensor& x, std::int64_t axis) {
  return reversed(along(Op::cumulative_sum, reversed(x, axis), axis), axis);
}

VjpTensor cumulative_sum_vjp(const VjpArgs& args, unsigned) { return sum_from_here(args.g, axis_of(args)); }

/// d(product up to i) / dx_j is that product over x_j. At the first zero of a line the products are taken without it,
/// and after it nothing depends on anything.
VjpTensor cumulative_prod_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t axis = axis_of(args);
  const VjpTensor& x = args.x[0];
  const VjpTensor is_zero = x == 0;
  const VjpTensor zeros = along(Op::cumulative_sum, cast(is_zero, DType::i64), axis);
  const VjpTensor first = logical_and(is_zero, zeros == 1);
  const VjpTensor whole = where(zeros == 0, sum_from_here(args.g * args.y, axis) / where(is_zero, 1, x), 0);
  const VjpTensor without = along(Op::cumulative_prod, where(first, 1, x), axis);
  const VjpTensor reached = where(zeros >= 1, args.g * without, 0);  // from the first zero on
  return where(first, sum_from_here(reached, axis), whole);
}

/// To the latest element that reached the running extreme.
VjpTensor cumulative_extreme_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t axis = axis_of(args);
  const Shape& shape = args.shape(0);
  const VjpTensor here = where(args.x[0] == args.y, iota(shape, axis, args.g), 0);
  return scattered(shape, along(Op::cumulative_max, here, axis), args.g, axis);
}

VjpTensor sort_vjp(const VjpArgs& args, unsigned) {
  const auto [axis, descending] = args.attributes_of<ops::Sort>();
  const VjpTensor order = call<Op::argsort>({.axis = axis, .descending = descending}, {&args.x[0].tensor(), 1});
  return scattered(args.shape(0), order, args.g, axis.value);
}

/// To each weight the gradient of the sum that it is part of.
VjpTensor bincount_vjp(const VjpArgs& args, unsigned) {
  const Shape sums = args.g.shape();
  if (sums.back() == 0) return full(0, {args.g.dtype(), args.shape(0)}, args.g);
  const VjpTensor bin = cast(args.x[0], DType::i64);
  const VjpTensor counted = logical_and(bin >= 0, bin < sums.back());
  const std::array tensors{args.g.tensor(), where(counted, bin, 0).tensor()};
  return where(counted, call<Op::gather>({.axis = {sums.rank() - 1}}, tensors), 0);
}

/// One sorted vector and many values to look up is the op itself. Where each has a vector of its own, positions are
/// counts of the elements that come before: one fused reduction. NaN is above all numbers.
Tensor batched_searchsorted(const BatchedCall& call) {
  using namespace vjp;
  const auto attributes = attributes_of<ops::Searchsorted>(call.attributes);
  const bool right = attributes.right.value;
  if (!call.operands[0].batched) {
    const std::array operands{call.operands[0].value, call.operands[1].value};
    return vjp::call<Op::searchsorted>(attributes, operands).tensor();
  }
  const VjpTensor wanted = vjp::expand_dims(call.with_batch(1), 2);
  Shape column{call.size, call.shape(0)[0]};
  while (column.rank() < wanted.shape().rank()) column.push_back(1);
  const VjpTensor sorted = vjp::reshape(call.operands[0].value, column);
  const auto is_less = [](const VjpTensor& a, const VjpTensor& b) {
    return logical_or(a < b, logical_and(isnan(b), logical_not(isnan(a))));
  };
  return reduce(Op::sum, right ? logical_not(is_less(wanted, sorted)) : is_less(sorted, wanted), 2, false).tensor();
}

}  // namespace

FERMATA_OP_RULES(cumulative_sum, batched_in_front, gradient(cumulative_sum_vjp));
FERMATA_OP_RULES(cumulative_prod, batched_in_front, gradient(cumulative_prod_vjp, kFirst | kResult));
FERMATA_OP_RULES(cumulative_max, batched_in_front, gradient(cumulative_extreme_vjp, kFirst | kResult));
FERMATA_OP_RULES(cumulative_min, batched_in_front, gradient(cumulative_extreme_vjp, kFirst | kResult));
FERMATA_OP_RULES(sort, batched_in_front, gradient(sort_vjp, kFirst));
FERMATA_OP_RULES(argsort, batched_in_front, kZeroGradient);
FERMATA_OP_RULES(top_k_indices, batched_in_front, kZeroGradient);
FERMATA_OP_RULES(searchsorted, batched_searchsorted, kZeroGradient, kZeroGradient);
FERMATA_OP_RULES(bincount, batched_in_front, kZeroGradient, gradient(bincount_vjp, kFirst));
FERMATA_OP_RULES(flatnonzero, kLoop, kZeroGradient);

}  // namespace vjp

}  // namespace fermata
