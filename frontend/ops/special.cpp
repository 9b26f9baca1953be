// See fermata/special.h: what is made of other ops. Formulas are rows of ir/ops/special.def; what needs loops that end
// by value is in special_kernels.cpp.
#include "fermata/special.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/dtypes.h"
#include "fermata/ops.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"

namespace fermata {
namespace {

void require_given(std::string_view function, const Operand& x) {
  if (x.is_tensor()) require_defined(function, x.tensor(), x.where());
}

}  // namespace

Tensor polygamma(std::int64_t n, const Operand& x) {
  constexpr std::int64_t kMost = 170;  // 171! is no double
  if (n < 0 || n > kMost)
    throw ValueError(1410,
                     format_error(1410, "ValueError", fmt::format("polygamma: {} derivatives", n),
                                  {{"n", std::to_string(n), fmt::format("should be 0 to {}", kMost)}}, x.where()));
  require_given("polygamma", x);
  if (n == 0) return digamma(x);
  const double factorial = std::tgamma(static_cast<double>(n) + 1);
  return multiply({zeta({static_cast<double>(n + 1), x.where()}, x), x.where()}, n % 2 == 0 ? -factorial : factorial);
}

FractionAndExponent frexp(const Operand& x) {
  require_given("frexp", x);
  const Location where = x.where();
  const Tensor exponent = frexp_exponent(x);
  return {ldexp(x, {negative({exponent, where}), where}), astype(exponent, DType::i32, where)};
}

Tensor nan_to_num(const Operand& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const Location where = x.where();
  const Tensor given = x.is_tensor() ? x.tensor() : full({}, x.scalar(), {}, where);
  require_defined("nan_to_num", given, where);
  if (is_complex(given.dtype()))
    return complex({nan_to_num({real({given, where}), where}, nan, posinf, neginf), where},
                   {nan_to_num({imag({given, where}), where}, nan, posinf, neginf), where});
  if (!is_floating(given.dtype())) return copy(given, where);
  const FloatInfo limits = finfo(given.dtype(), where);
  const Tensor finite = fermata::where({isnan({given, where}), where}, nan, given);
  const Tensor below = fermata::where({equal({finite, where}, HUGE_VAL), where}, posinf.value_or(limits.max), finite);
  return fermata::where({equal({below, where}, -HUGE_VAL), where}, neginf.value_or(limits.min), below);
}

}  // namespace fermata
