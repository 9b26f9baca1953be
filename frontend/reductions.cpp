// See fermata/reductions.h.
#include "fermata/reductions.h"

#include <bit>

#include "fermata/ops.h"
#include "frontend/calls.h"
#include "ir/infer.h"

namespace fermata {
namespace {

/// The attributes of reductions: [bit mask of axes, keepdims].
Tensor reduce(Op op, const Tensor& x, const IntegerList& axes, bool keepdims, std::span<const std::uint64_t> scalars,
              Location where) {
  require_defined(name(op), x, where);
  const std::int64_t attributes[] = {axes_mask(name(op), axes, type_of(x), where), keepdims ? 1 : 0};
  return general_call(op, {&x, 1}, {.wanted = {}, .integers = attributes, .scalars = scalars}, where);
}

}  // namespace

#define FERMATA_REDUCE(name, rule, vjp, doc)                                             \
  Tensor name(const Tensor& x, const IntegerList& axes, bool keepdims, Location where) { \
    return reduce(Op::name, x, axes, keepdims, {}, where);                               \
  }
#include "ir/ops.def"

Tensor mean(const Tensor& x, const IntegerList& axes, bool keepdims, Location where) {
  return reduce(Op::mean, x, axes, keepdims, {}, where);
}

Tensor var(const Tensor& x, const IntegerList& axes, bool keepdims, double correction, Location where) {
  const auto bits = std::bit_cast<std::uint64_t>(correction);
  return reduce(Op::var, x, axes, keepdims, {&bits, 1}, where);
}

Tensor stddev(const Tensor& x, const IntegerList& axes, bool keepdims, double correction, Location where) {
  return sqrt({var(x, axes, keepdims, correction, where), where});
}

Tensor logsumexp(const Tensor& x, const IntegerList& axes, bool keepdims, Location where) {
  return reduce(Op::logsumexp, x, axes, keepdims, {}, where);
}

}  // namespace fermata
