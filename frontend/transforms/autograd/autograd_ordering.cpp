// Derivatives of scans and sorts. See autograd_rules.h.
#include <array>

#include "frontend/transforms/autograd/autograd_rules.h"

namespace fermata {
namespace vjp {
namespace {

std::int64_t axis_of(const VjpArgs& args) { return args.attributes()[0]; }

Located along(Op op, const Located& x, std::int64_t axis) {
  const std::array tensors{x.tensor()};
  return call(op, tensors, {&axis, 1});
}

/// Zeros of `shape` with the values added at positions along an axis.
Located scattered(const Shape& shape, const Located& index, const Located& values, std::int64_t axis) {
  const std::array tensors{full(0, {values.dtype(), shape}, values).tensor(), index.tensor(), values.tensor()};
  return call(Op::scatter_add, tensors, {&axis, 1});
}

Located reversed(const Located& x, std::int64_t axis) {
  Shape starts, steps;
  for (unsigned i = 0; i < x.shape().rank(); ++i) {
    const bool turned = static_cast<std::int64_t>(i) == axis && x.shape()[i] > 0;
    starts.push_back(turned ? x.shape()[i] - 1 : 0), steps.push_back(turned ? -1 : 1);
  }
  return slice(x, starts, steps, x.shape());
}
/// Sums of all elements from each one on.
Located sum_from_here(const Located& x, std::int64_t axis) {
  return reversed(along(Op::cumulative_sum, reversed(x, axis), axis), axis);
}

Located cumulative_sum_vjp(const VjpArgs& args, unsigned) { return sum_from_here(args.g, axis_of(args)); }

/// d(product up to i) / dx_j is that product over x_j. At the first zero of a line the products are taken without it,
/// and after it nothing depends on anything.
Located cumulative_prod_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t axis = axis_of(args);
  const Located& x = args.x[0];
  const Located is_zero = x == 0;
  const Located zeros = along(Op::cumulative_sum, cast(is_zero, DType::i64), axis);
  const Located first = logical_and(is_zero, zeros == 1);
  const Located whole = where(zeros == 0, sum_from_here(args.g * args.y, axis) / where(is_zero, 1, x), 0);
  const Located without = along(Op::cumulative_prod, where(first, 1, x), axis);
  const Located reached = where(zeros >= 1, args.g * without, 0);  // from the first zero on
  return where(first, sum_from_here(reached, axis), whole);
}

/// To the latest element that reached the running extreme.
Located cumulative_extreme_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t axis = axis_of(args);
  const Shape& shape = args.shape(0);
  const Located here = where(args.x[0] == args.y, iota(shape, axis, args.g), 0);
  return scattered(shape, along(Op::cumulative_max, here, axis), args.g, axis);
}

Located sort_vjp(const VjpArgs& args, unsigned) {
  const std::array tensors{args.x[0].tensor()};
  return scattered(args.shape(0), call(Op::argsort, tensors, args.attributes()), args.g, axis_of(args));
}

}  // namespace
}  // namespace vjp

VjpRule ordering_vjp_rule(Op op) {
  using namespace vjp;
  const auto formula = [](Vjp vjp, std::uint8_t reads) { return VjpRule::Entry{Derivative::formula, vjp, reads}; };
  constexpr VjpRule::Entry zero{Derivative::zero};
  constexpr std::uint8_t kFirst = 1, kResult = VjpRule::kResult;
  switch (op) {
    case Op::cumulative_sum: return {{formula(cumulative_sum_vjp, 0)}};
    case Op::cumulative_prod: return {{formula(cumulative_prod_vjp, kFirst | kResult)}};
    case Op::cumulative_max:
    case Op::cumulative_min: return {{formula(cumulative_extreme_vjp, kFirst | kResult)}};
    case Op::sort: return {{formula(sort_vjp, kFirst)}};
    case Op::argsort:
    case Op::top_k_indices:
    case Op::flatnonzero: return {{zero}};
    case Op::searchsorted: return {{zero, zero}};
    default: return {};
  }
}

}  // namespace fermata
