// The autocast policy of every op: a rule for each family, the regular ops that differ from it, and what the structs of
// irregular ops say (ir/ops/*.h).
#include "fermata/autocast.h"

#include "ir/op_traits.h"

namespace fermata {
namespace {

using enum AutocastPolicy;

struct Exception {
  Op op;
  AutocastPolicy policy;
};

/// The functions in f32 have slopes or poles that
/// turn a rounding to 8 bits into a large error, or a result near 1 of which the difference to 1 matters.
constexpr Exception kExceptions[] = {
    {Op::linear, lower}, {Op::exp, f32},   {Op::exp2, f32},     {Op::expm1, f32},       {Op::log, f32},
    {Op::log2, f32},     {Op::log10, f32}, {Op::log1p, f32},    {Op::pow, f32},         {Op::reciprocal, f32},
    {Op::rsqrt, f32},    {Op::erf, f32},   {Op::softplus, f32}, {Op::log_sigmoid, f32},
};

AutocastPolicy policy_of(OperandPrecision precision) {
  switch (precision) {
    case OperandPrecision::as_given: return untouched;
    case OperandPrecision::lower: return lower;
    case OperandPrecision::f32: return f32;
    case OperandPrecision::widest: return widest;
  }
  return untouched;
}

}  // namespace

AutocastPolicy autocast_policy(Op op) {
  for (const Exception& e : kExceptions)
    if (e.op == op) return e.policy;
  if (info(op).rule == DTypeRule::accumulate) return f32;  // sums and products of many elements, scans included
  switch (family(op)) {
    case Family::binary:
    case Family::ternary: return widest;
    case Family::composite: return f32;  // normalizations, losses, statistics: as a whole, so the parts follow
    case Family::irregular: return policy_of(traits(op).precision);
    default: return untouched;
  }
}

}  // namespace fermata
