// See fermata/special.h. Formulas are pointwise operators of namespace fermata, with their derivatives beside them;
// what needs loops that end by value is in special_kernels.cpp.
#include "fermata/special.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "dispatch/library.h"
#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/custom_function.h"
#include "fermata/device.h"
#include "fermata/dtypes.h"
#include "fermata/ops.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/special_kernels.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/scalar_math/bessel.h"
#include "ir/scalar_math/gamma_functions.h"
#include "ir/scalar_math/normal_quantile.h"

namespace fermata {
namespace {

using vjp::VjpTensor;
using UnaryGradient = VjpTensor (*)(const VjpTensor& g, const VjpTensor& x, const VjpTensor& y);
using BinaryGradient = VjpTensor (*)(const VjpTensor& g, const VjpTensor& a, const VjpTensor& b, const VjpTensor& y);

/// One that is zero everywhere.
constexpr std::nullptr_t kZero = nullptr;

/// An argument, a host number as a tensor without axes.
Tensor operand_of(const Value& value, const Tensor& result) {
  if (value.is<Tensor>()) return value.as<Tensor>();
  const DType dtype = is_floating(result.dtype()) ? result.dtype() : DType::f64;
  return full({}, value.as<Scalar>(), dtype, device(result), vjp::current_line);
}

std::vector<Tensor> gradients_of(const DerivativeArguments& d, std::span<const BinaryGradient> by_operand) {
  const Tensor& y = d.results[0];
  const Tensor a = operand_of(d.arguments[0], y), b = operand_of(d.arguments[1], y);
  std::vector<Tensor> gradients;
  for (std::size_t k = 0; k < by_operand.size(); ++k) {
    if (!d.arguments[k].is<Tensor>()) continue;
    const Tensor& x = k == 0 ? a : b;
    gradients.push_back(by_operand[k] == nullptr
                            ? zeros_like(x, {}, vjp::current_line)
                            : vjp::sum_to(by_operand[k](d.gradients[0], a, b, y), x.shape()).tensor());
  }
  return gradients;
}

/// The library of the operators here, and the kernels of their Autograd key.
struct Definitions {
  template <class F> void unary(std::string_view name, F formula, std::string_view text, UnaryGradient gradient) {
    operators.pointwise<DTypeRule::floating>(name, formula, std::string(text));
    autograd.impl_boxed(name, derivative([gradient](const DerivativeArguments& d) -> std::vector<Tensor> {
                          const Tensor& x = d.arguments[0].as<Tensor>();
                          return {gradient == nullptr ? zeros_like(x, {}, vjp::current_line)
                                                      : gradient(d.gradients[0], x, d.results[0]).tensor()};
                        }));
  }
  template <DTypeRule Rule = DTypeRule::floating, class F>
  void binary(std::string_view name, F formula, std::string_view text, BinaryGradient by_a, BinaryGradient by_b) {
    operators.pointwise<Rule>(name, formula, std::string(text));
    autograd.impl_boxed(name, derivative([by_a, by_b](const DerivativeArguments& d) {
                          return gradients_of(d, std::array{by_a, by_b});
                        }));
  }
  Library operators{Library::Kind::fragment, "fermata"}, autograd{Library::Kind::implementation, "fermata", "Autograd"};
};

VjpTensor of(Tensor (*function)(const Operand&), const VjpTensor& x) {
  return function({x.tensor(), vjp::current_line});
}

void define_gamma_family(Definitions& m) {
  m.unary(
      "lgamma", [](auto x) { return math::lgamma(x); }, "log |Gamma(x)|.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor&) { return g * of(&digamma, x); });
  m.unary(
      "digamma", [](auto x) { return math::digamma(x); }, "The derivative of lgamma.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor&) -> VjpTensor {
        return g * VjpTensor(polygamma(1, {x.tensor(), vjp::current_line}));
      });
}

void define_bessel_family(Definitions& m) {
  m.unary(
      "j0", [](auto x) { return math::j0(x); }, "Bessel function of the first kind and order 0.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor&) { return -g * of(&j1, x); });
  m.unary(
      "j1", [](auto x) { return math::j1(x); }, "Bessel function of the first kind and order 1.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor& y) {
        return g * (of(&j0, x) - where(x == 0, 0.5, y / where(x == 0, 1, x)));
      });
  m.unary(
      "i0", [](auto x) { return math::i0(x); }, "Modified Bessel function of the first kind and order 0.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor&) { return g * of(&i1, x); });
  m.unary(
      "i1", [](auto x) { return math::i1(x); }, "Modified Bessel function of the first kind and order 1.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor& y) {
        return g * (of(&i0, x) - where(x == 0, 0.5, y / where(x == 0, 1, x)));
      });
  m.unary(
      "i0e", [](auto x) { return math::i0e(x); }, "i0(x) exp(-|x|).",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor& y) { return g * (of(&i1e, x) - sign(x) * y); });
  m.unary(
      "i1e", [](auto x) { return math::i1e(x); }, "i1(x) exp(-|x|).",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor& y) {
        return g * (of(&i0e, x) - y * sign(x) - where(x == 0, 0.5, y / where(x == 0, 1, x)));
      });
}

/// phi(x) / Phi(x), which grows like -x far below zero, where both vanish.
VjpTensor normal_hazard(const VjpTensor& x, const VjpTensor& log_ndtr) {
  const VjpTensor far = x < -7, u = reciprocal(square(where(far, x, -7)));
  const VjpTensor series = 1 + u * (-1 + u * (3 + u * (-15 + u * (105 + u * -945))));
  return where(far, -x / series, exp(where(far, 0, square(x) * -0.5 - log_ndtr)) * 0.3989422804014327);
}

void define_normal_family(Definitions& m) {
  m.unary(
      "ndtr", [](auto x) { return math::ndtr(x); }, "The share of a standard normal distribution below x.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor&) {
        return g * exp(square(x) * -0.5) * 0.3989422804014327;
      });
  m.unary(
      "log_ndtr", [](auto x) { return math::log_ndtr(x); }, "log(ndtr(x)) without underflow.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor& y) { return g * normal_hazard(x, y); });
  m.unary(
      "ndtri", [](auto x) { return math::ndtri(x); }, "The inverse of ndtr.",
      [](const VjpTensor& g, const VjpTensor&, const VjpTensor& y) {
        return g * exp(square(y) * 0.5) * 2.5066282746310002;
      });
  m.unary(
      "erfinv", [](auto x) { return math::erfinv(x); }, "The inverse of erf.",
      [](const VjpTensor& g, const VjpTensor&, const VjpTensor& y) { return g * exp(square(y)) * 0.8862269254527580; });
}

void define_logarithms(Definitions& m) {
  m.binary(
      "xlogy",
      [](auto a, auto b) {
        using V = decltype(a);
        return select((a == V(0)) & (b == b), V(0), a * math::log(b));
      },
      "a log(b); 0 where a is 0.",
      [](const VjpTensor& g, const VjpTensor& a, const VjpTensor& b, const VjpTensor&) {
        return g * where(a == 0, 0, log(b));
      },
      [](const VjpTensor& g, const VjpTensor& a, const VjpTensor& b, const VjpTensor&) { return g * a / b; });
  m.binary(
      "xlog1py",
      [](auto a, auto b) {
        using V = decltype(a);
        return select((a == V(0)) & (b == b), V(0), a * math::log1p(b));
      },
      "a log1p(b); 0 where a is 0.",
      [](const VjpTensor& g, const VjpTensor& a, const VjpTensor& b, const VjpTensor&) {
        return g * where(a == 0, 0, log1p(b));
      },
      [](const VjpTensor& g, const VjpTensor& a, const VjpTensor& b, const VjpTensor&) { return g * a / (b + 1); });
  m.unary(
      "entr",
      [](auto x) {
        using V = decltype(x);
        const V below = select(x < V(0), -math::infinity<V>(), x);
        return select(x > V(0), -x * math::log(x), select(x == V(0), V(0), below));
      },
      "-x log(x); 0 at 0, -infinity below.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor&) { return g * (-1 - log(x)); });
}

/// a 2^n in two steps of which only the last one rounds; |n| is bounded so that two powers hold it.
template <class V> V scaled_by_power(V a, V exponent) {
  using T = math::ElementOfValue<V>;
  constexpr T kBias = math::FormatOf<V>::kBias, kMost = 2 * kBias + math::FormatOf<V>::kMantissaBits;
  const V n = max(V(-kMost), min(V(kMost), rint(exponent)));
  // One power where it is a float. Else three, of which the first two do not lead to subnormals.
  const V third = select(abs(n) < V(kBias), V(T(0)), trunc(n * math::constant<V>(1.0 / 3))), rest = n - third - third;
  const V round = V(math::kRoundToExponent<T>);
  const auto power = [&](V k) { return math::power_of_two<V>(math::bits_of(k + round)); };
  const V sized = a * power(third) * power(third) * power(rest);
  return select(exponent == exponent, sized, exponent);
}

void define_parts_of_numbers(Definitions& m) {
  m.unary(
      "sinc", [](auto x) { return math::sinc(x); }, "sin(pi x) / (pi x), 1 at 0.",
      [](const VjpTensor& g, const VjpTensor& x, const VjpTensor& y) {
        const VjpTensor safe = where(x == 0, 1, x);
        return g * where(x == 0, 0, (cos(x * 3.141592653589793) - y) / safe);
      });
  m.binary<DTypeRule::numeric>(
      "heaviside",
      [](auto a, auto b) {
        using V = decltype(a);
        const V zero(0), step = select(a > zero, V(1), select(a < zero, zero, a));
        return select(a == zero, b, step);
      },
      "0 below zero, b at zero, 1 above.", kZero,
      [](const VjpTensor& g, const VjpTensor& a, const VjpTensor&, const VjpTensor&) { return where(a == 0, g, 0); });
  m.binary(
      "ldexp", [](auto a, auto b) { return scaled_by_power(a, b); }, "a 2^b for whole numbers b.",
      [](const VjpTensor& g, const VjpTensor&, const VjpTensor& b, const VjpTensor&) -> VjpTensor {
        return ldexp({g.tensor(), vjp::current_line}, {b.tensor(), vjp::current_line});
      },
      kZero);
  const auto exponent_of = [](auto x) {  // |x| = 2^e f with 1/2 <= f < 1
    using V = decltype(x);
    using T = math::ElementOfValue<V>;
    using F = math::FormatOf<V>;
    using B = math::UnsignedBits<V>;
    using U = typename F::Unsigned;
    constexpr T kUp = static_cast<T>(std::uint64_t{1} << (F::kMantissaBits + 1));
    const auto subnormal = abs(x) < V(std::numeric_limits<T>::min());
    const B bits = math::bits_of(abs(select(subnormal, x * V(kUp), x)));
    const V field = convert<T>(bitcast<typename F::Signed>(bits >> B(static_cast<U>(F::kMantissaBits))));
    const V e = field - V(static_cast<T>(F::kBias - 1)) - select(subnormal, V(T(F::kMantissaBits + 1)), V(T(0)));
    return select((x == V(0)) | !(abs(x) < math::infinity<V>()), V(T(0)), e);
  };
  m.unary("frexp_exponent", exponent_of, "The e of x = f 2^e with 1/2 <= |f| < 1, as a float.", kZero);
}

}  // namespace

namespace {

void require_given(std::string_view function, const Operand& x) {
  if (x.is_tensor()) require_defined(function, x.tensor(), x.where());
}

}  // namespace

#define FERMATA_SPECIAL_UNARY(name)                                                                 \
  Tensor name(const Operand& x) {                                                                   \
    static const auto op = OperatorHandle::find("fermata::" #name).typed<Tensor(const Operand&)>(); \
    require_given(#name, x);                                                                        \
    return op(x, x.where());                                                                        \
  }
FERMATA_SPECIAL_UNARY(lgamma)
FERMATA_SPECIAL_UNARY(digamma)
FERMATA_SPECIAL_UNARY(j0)
FERMATA_SPECIAL_UNARY(j1)
FERMATA_SPECIAL_UNARY(i0)
FERMATA_SPECIAL_UNARY(i1)
FERMATA_SPECIAL_UNARY(i0e)
FERMATA_SPECIAL_UNARY(i1e)
FERMATA_SPECIAL_UNARY(ndtr)
FERMATA_SPECIAL_UNARY(log_ndtr)
FERMATA_SPECIAL_UNARY(ndtri)
FERMATA_SPECIAL_UNARY(erfinv)
FERMATA_SPECIAL_UNARY(entr)
FERMATA_SPECIAL_UNARY(sinc)

#define FERMATA_SPECIAL_BINARY(name)                                                                                \
  Tensor name(const Operand& x, const Operand& y) {                                                                 \
    static const auto op = OperatorHandle::find("fermata::" #name).typed<Tensor(const Operand&, const Operand&)>(); \
    require_given(#name, x), require_given(#name, y);                                                               \
    return op(x, y, x.where());                                                                                     \
  }
FERMATA_SPECIAL_BINARY(xlogy)
FERMATA_SPECIAL_BINARY(xlog1py)
FERMATA_SPECIAL_BINARY(heaviside)
FERMATA_SPECIAL_BINARY(ldexp)

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
  static const auto op = OperatorHandle::find("fermata::frexp_exponent").typed<Tensor(const Operand&)>();
  require_given("frexp", x);
  const Location where = x.where();
  const Tensor exponent = op(x, where);
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

void register_special_functions() {
  Definitions m;
  define_gamma_family(m);
  define_bessel_family(m);
  define_normal_family(m);
  define_logarithms(m);
  define_parts_of_numbers(m);
  m.operators.keep();
  m.autograd.keep();
  register_special_kernels();
}

}  // namespace fermata
