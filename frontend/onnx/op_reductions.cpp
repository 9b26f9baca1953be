// Reductions and prefix sums.
#include <array>
#include <numeric>

#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

using Reduction = Tensor (*)(const Tensor&, const IntegerList&, bool, Location);

/// `axes` as an attribute, or as operand 1; an empty list means all axes, or none if noop_with_empty_axes is set.
Tensor reduced(const NodeCall& c, const Tensor& x, Reduction f) {
  std::vector<std::int64_t> axes = c.list("axes", 1).value_or(std::vector<std::int64_t>());
  const bool keep = c.attr("keepdims", std::int64_t{1}) != 0;
  if (axes.empty() && c.attr("noop_with_empty_axes", std::int64_t{0}) != 0) return f(x, no_axes, keep, c.where);
  if (axes.empty()) return f(x, {}, keep, c.where);
  return f(x, axes, keep, c.where);
}
bool is_noop(const NodeCall& c) {
  return c.attr("noop_with_empty_axes", std::int64_t{0}) != 0 &&
         c.list("axes", 1).value_or(std::vector<std::int64_t>()).empty();
}
Tensor as(const Tensor& x, DType dtype, const NodeCall& c) { return astype(x, dtype, c.where); }

void sum_op(NodeCall& c) { c.give(as(reduced(c, c.in(0), &sum), c.in(0).dtype(), c)); }
void prod_op(NodeCall& c) { c.give(as(reduced(c, c.in(0), &prod), c.in(0).dtype(), c)); }
void mean_op(NodeCall& c) { c.give(as(reduced(c, c.in(0), &mean), c.in(0).dtype(), c)); }

/// The extreme of nothing is the first number of its dtype.
template <Reduction f, bool is_max> void extreme(NodeCall& c) {
  const Tensor x = c.in(0);
  if (x.element_count() == 0) {
    const Tensor counts = reduced(c, ones_like(x, DType::f32, c.where), &prod);
    double worst = is_max ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    if (is_integer(x.dtype())) {
      const Tensor shown = zeros_like(counts, DType::f64, c.where) + worst;
      return c.give(as(shown, x.dtype(), c));
    }
    if (x.dtype() == DType::boolean)
      return c.give(as(zeros_like(counts, DType::f32, c.where) + (is_max ? 0 : 1), x.dtype(), c));
    return c.give(as(zeros_like(counts, DType::f32, c.where) + worst, x.dtype(), c));
  }
  if (x.dtype() == DType::boolean) return c.give(as(reduced(c, as(x, DType::u8, c), f), DType::boolean, c));
  c.give(reduced(c, x, f));
}
void l1_op(NodeCall& c) { c.give(as(reduced(c, abs(c.in(0)), &sum), c.in(0).dtype(), c)); }
void sum_square_op(NodeCall& c) { c.give(as(reduced(c, square(c.in(0)), &sum), c.in(0).dtype(), c)); }
Tensor floats(const Tensor& x, const NodeCall& c) { return is_floating(x.dtype()) ? x : as(x, DType::f64, c); }
void l2_op(NodeCall& c) { c.give(as(sqrt(reduced(c, square(floats(c.in(0), c)), &sum)), c.in(0).dtype(), c)); }
void log_sum_op(NodeCall& c) { c.give(as(log(reduced(c, floats(c.in(0), c), &sum)), c.in(0).dtype(), c)); }
void log_sum_exp_op(NodeCall& c) {
  c.give(is_noop(c) ? c.in(0) : as(reduced(c, floats(c.in(0), c), &logsumexp), c.in(0).dtype(), c));
}

template <Reduction f> void arg_extreme(NodeCall& c) {
  Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{0}), x.rank());
  const bool keep = c.attr("keepdims", std::int64_t{1}) != 0;
  if (c.attr("select_last_index", std::int64_t{0}) == 0) return c.give(f(x, axis, keep, c.where));
  const Tensor last = f(flip(x, axis, c.where), axis, keep, c.where);
  c.give(subtract(Operand(x.size(axis) - 1, c.where), Operand(last, c.where)));
}

void cumulative_sum_op(NodeCall& c) {
  Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.integer(1), x.rank());
  const bool reverse = c.attr("reverse", std::int64_t{0}) != 0;
  if (reverse) x = flip(x, axis, c.where);
  Tensor sums = as(cumulative_sum(x, axis, false, c.where), x.dtype(), c);
  if (c.attr("exclusive", std::int64_t{0}) != 0) sums = subtract(Operand(sums, c.where), Operand(x, c.where));
  c.give(reverse ? flip(sums, axis, c.where) : sums);
}
void cumulative_prod_op(NodeCall& c) {
  Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.integer(1), x.rank());
  const bool reverse = c.attr("reverse", std::int64_t{0}) != 0;
  const bool exclusive = c.attr("exclusive", std::int64_t{0}) != 0;
  if (reverse) x = flip(x, axis, c.where);
  Tensor products = as(cumulative_prod(x, axis, exclusive, c.where), x.dtype(), c);
  if (exclusive) products = slice(products, axis, 0, x.size(axis), 1, c.where);
  c.give(reverse ? flip(products, axis, c.where) : products);
}

constexpr std::uint32_t kAxes = 0b10;
constexpr std::array kRows{
    OperatorRow{"ArgMax", &arg_extreme<&argmax>},
    OperatorRow{"ArgMin", &arg_extreme<&argmin>},
    OperatorRow{"CumProd", &cumulative_prod_op, {}, kAxes},
    OperatorRow{"CumSum", &cumulative_sum_op, {}, kAxes},
    OperatorRow{"ReduceL1", &l1_op, {}, kAxes},
    OperatorRow{"ReduceL2", &l2_op, {}, kAxes},
    OperatorRow{"ReduceLogSum", &log_sum_op, {}, kAxes},
    OperatorRow{"ReduceLogSumExp", &log_sum_exp_op, {}, kAxes},
    OperatorRow{"ReduceMax", &extreme<&max, true>, {}, kAxes},
    OperatorRow{"ReduceMean", &mean_op, {}, kAxes},
    OperatorRow{"ReduceMin", &extreme<&min, false>, {}, kAxes},
    OperatorRow{"ReduceProd", &prod_op, {}, kAxes},
    OperatorRow{"ReduceSum", &sum_op, {}, kAxes},
    OperatorRow{"ReduceSumSquare", &sum_square_op, {}, kAxes},
};

}  // namespace

Rows reduction_rows() { return kRows; }

}  // namespace fermata::onnx
