// Reductions of the elements that a mask takes: see fermata/statistics.h. What is not taken becomes what the reduction
// starts from, which fuses with it.
#include <fmt/format.h>

#include <cmath>

#include "fermata/complex.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/statistics.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/extreme_numbers.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// Integers become f32, and so do f16 and bf16, whose sums are rounded once.
DType floated(const Tensor& x) { return is_inexact(x.dtype()) ? x.dtype() : DType::f32; }

Tensor checked(std::string_view function, const Tensor& x, const Tensor& taken, Location where) {
  require_defined(function, x, where), require_defined(function, taken, where);
  if (broadcast_shapes(x.shape(), taken.shape()) != x.shape())
    throw ShapeError(
        1001, format_error(
                  1001, "ShapeError", fmt::format("{}: the mask does not broadcast to x", function),
                  {{"x", to_string(x.dtype(), x.shape()), ""}, {"mask", to_string(taken.dtype(), taken.shape()), ""}},
                  where));
  return astype(taken, DType::boolean, where);
}

VjpTensor filled(const Tensor& x, const Tensor& mask, const VjpTensor& value) { return vjp::where(mask, x, value); }

/// How many are taken, in the dtype of a mean.
VjpTensor count_of(const Tensor& x, const Tensor& mask, const IntegerList& axes, bool keepdims, Location where) {
  const DType dtype = real_dtype(compute_dtype(floated(x)));
  const Tensor all = broadcast_to(mask, x.shape(), where);
  return astype(sum(all, axes, keepdims, where), dtype, where);
}

VjpTensor mean_of(const Tensor& wide, const Tensor& mask, const IntegerList& axes, bool keepdims, Location where) {
  const VjpTensor total = sum(filled(wide, mask, 0).tensor(), axes, keepdims, where);
  return total / count_of(wide, mask, axes, keepdims, where);
}

using Reduction = Tensor (*)(const Tensor&, const IntegerList&, bool, Location);

/// argmax or argmin: the first element that is taken and equal to the extreme.
Tensor position_of(std::string_view function, const Tensor& x, const IntegerList& axes, bool keepdims,
                   const Tensor& taken, bool highest, Location where) {
  const Tensor mask = checked(function, x, taken, where);
  const vjp::LineGuard line(where);
  const Tensor kept = filled(x, mask, extreme_number(x.dtype(), !highest)).tensor();
  const VjpTensor best = highest ? max(kept, axes, true, where) : min(kept, axes, true, where);
  const VjpTensor same = VjpTensor(x) == best;
  const VjpTensor matches =
      is_floating(x.dtype()) ? logical_or(same, logical_and(isnan(VjpTensor(x)), isnan(best))) : same;
  return argmax(logical_and(matches, VjpTensor(mask)).tensor(), axes, keepdims, where);
}

template <Op op> Tensor masked(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken,
                               Reduction whole, Location where) {
  if constexpr (op == Op::argmax || op == Op::argmin) {
    return position_of(name(op), x, axes, keepdims, taken, op == Op::argmax, where);
  } else {
    const Tensor mask = checked(name(op), x, taken, where);
    const vjp::LineGuard line(where);
    const Scalar start = op == Op::sum || op == Op::any    ? Scalar(0)
                         : op == Op::prod || op == Op::all ? Scalar(1)
                                                           : extreme_number(x.dtype(), op == Op::min);
    const bool is_test = op == Op::any || op == Op::all;
    const Tensor given = is_test ? astype(x, DType::boolean, where) : x;
    const Scalar of_kind = given.dtype() == DType::boolean ? Scalar(start.as_double() != 0) : start;
    return whole(filled(given, mask, of_kind).tensor(), axes, keepdims, where);
  }
}

}  // namespace

#define FERMATA_REDUCE(name, rule, vjp, doc)                                                                  \
  Tensor name(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken, Location where) { \
    return masked<Op::name>(x, axes, keepdims, taken, &name, where);                                          \
  }
#include "ir/ops.def"

Tensor mean(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken, Location where) {
  const Tensor mask = checked("mean", x, taken, where);
  const vjp::LineGuard line(where);
  const Tensor wide = astype(x, compute_dtype(floated(x)), where);
  return astype(mean_of(wide, mask, axes, keepdims, where).tensor(), floated(x), where);
}

Tensor var(const Tensor& x, const IntegerList& axes, bool keepdims, double correction, const Tensor& taken,
           Location where) {
  const Tensor mask = checked("var", x, taken, where);
  const vjp::LineGuard line(where);
  const Tensor wide = astype(x, compute_dtype(floated(x)), where);
  // Elements that are left out may be NaN: they are replaced before anything is computed of them, for the gradients.
  const VjpTensor kept = filled(wide, mask, 0);
  const VjpTensor distance = kept - mean_of(wide, mask, axes, true, where);
  const VjpTensor size = is_complex(wide.dtype()) ? VjpTensor(abs({distance.tensor(), where})) : distance;
  const VjpTensor total = sum(filled(square(size).tensor(), mask, 0).tensor(), axes, keepdims, where);
  const VjpTensor divisor = maximum(count_of(wide, mask, axes, keepdims, where) - correction, 0);
  return astype((total / divisor).tensor(), real_dtype(floated(x)), where);
}

Tensor stddev(const Tensor& x, const IntegerList& axes, bool keepdims, double correction, const Tensor& taken,
              Location where) {
  return sqrt({var(x, axes, keepdims, correction, taken, where), where});
}

Tensor logsumexp(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken, Location where) {
  const Tensor mask = checked("logsumexp", x, taken, where);
  const vjp::LineGuard line(where);
  return logsumexp(filled(astype(x, floated(x), where), mask, -HUGE_VAL).tensor(), axes, keepdims, where);
}

Tensor count_nonzero(const Tensor& x, const IntegerList& axes, bool keepdims, const Tensor& taken, Location where) {
  const Tensor mask = checked("count_nonzero", x, taken, where);
  const vjp::LineGuard line(where);
  return sum(filled(astype(x, DType::boolean, where), mask, false).tensor(), axes, keepdims, where);
}

}  // namespace fermata
