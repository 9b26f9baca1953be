// See fermata/reductions.h.
#include "fermata/reductions.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "ir/infer.h"

namespace fermata {
namespace {

/// Where the axes after the last reduced one have one element each: `mask` with them, as lanes run along a reduction
/// only if nothing comes after it. Else `mask`, as for ops that give a position along the axis they are told.
std::uint16_t with_axes_of_one_element(Op op, std::uint16_t mask, const Tensor& x) {
  if (info(op).rule == DTypeRule::index) return mask;
  const Shape sizes = x.shape();
  const auto last = static_cast<unsigned>(std::bit_width(mask));
  if (mask == 0 || last == sizes.rank() || x.impl()->payload != nullptr) return mask;
  if (std::ranges::find(sizes, 0) != sizes.end()) return mask;
  if (std::any_of(sizes.begin() + last, sizes.end(), [](std::int64_t size) { return size != 1; })) return mask;
  return static_cast<std::uint16_t>(mask | ((1u << sizes.rank()) - (1u << last)));
}

/// A reduction, or one of the composite ops that take the same attributes and `scalars` with them.
Tensor reduce(Op op, const Tensor& x, const IntegerList& axes, bool keepdims, std::span<const std::uint64_t> scalars,
              Location where) {
  require_defined(name(op), x, where);
  if (axes.names_none() && info(op).rule != DTypeRule::index)  // over an inserted axis of one element
    return reduce(op, expand_dims(x, x.rank(), where), x.rank(), false, scalars, where);
  const std::uint16_t mask = axes.names_none() ? std::uint16_t{0} : axes_mask(name(op), axes, type_of(x), where),
                      more = with_axes_of_one_element(op, mask, x);
  const auto attributes = encode(ops::Reduction{.axes = {more}, .keepdims = {keepdims || more != mask}});
  const Tensor result = general_call(op, {&x, 1}, {.wanted = {}, .integers = attributes, .scalars = scalars}, where);
  if (keepdims || more == mask) return result;
  std::vector<std::int64_t> reduced;
  for (unsigned axis = 0; axis < x.rank(); ++axis)
    if ((mask >> axis & 1u) != 0) reduced.push_back(axis);
  return squeeze(result, reduced, where);
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
