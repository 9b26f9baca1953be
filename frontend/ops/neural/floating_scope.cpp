// See floating_scope.h.
#include "frontend/ops/neural/floating_scope.h"

#include <fmt/format.h>

#include "fermata/autocast.h"
#include "fermata/ops.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"

namespace fermata {

FloatingScope::FloatingScope(std::string_view function, std::initializer_list<const Tensor*> operands, Location where,
                             bool keeps_dtype)
    : line_(where), function_(function), where_(where), dtype_(DType::boolean) {
  for (const Tensor* x : operands) {
    require_defined(function, *x, where);
    if (is_floating(x->dtype())) dtype_ = promote(dtype_, x->dtype()).value_or(dtype_);
  }
  if (!is_floating(dtype_)) dtype_ = DType::f32;
  if (!keeps_dtype && autocast_enabled()) dtype_ = compute_dtype(dtype_);
}

vjp::VjpTensor FloatingScope::operator()(const Tensor& x) const { return astype(x, compute_dtype(dtype_), where_); }

Tensor FloatingScope::result(const vjp::VjpTensor& y) const { return astype(y.tensor(), dtype_, where_); }

void fail_parameter(std::string_view function, std::string_view what, Location where) {
  throw ValueError(1377, format_error(1377, "ValueError", fmt::format("{}: {}", function, what), {}, where));
}

void require_probability(std::string_view function, const Tensor& x, double p, Location where) {
  require_defined(function, x, where);
  if (!(p >= 0 && p <= 1)) fail_parameter(function, "p is not between 0 and 1", where);
}

}  // namespace fermata
