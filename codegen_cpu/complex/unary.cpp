// Ops of one complex operand. Functions are those of <complex>, which follow C99's Annex G, as the Python array API
// does.
//
// Expressions that cancel, such as the logarithm near 1, are computed in the next wider type.
#include <cmath>
#include <limits>
#include <numbers>

#include "codegen_cpu/complex/complex.h"
#include "codegen_cpu/complex/elements.h"

namespace fermata {
namespace {

template <class T> using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <class T> std::complex<T> widely(std::complex<T> z, auto&& f) {
  using W = Wider<T>;
  const std::complex<W> y = f(std::complex<W>(static_cast<W>(z.real()), static_cast<W>(z.imag())));
  return {static_cast<T>(y.real()), static_cast<T>(y.imag())};
}

/// exp(a + bi) - 1 = expm1(a) cos(b) - 2 sin(b / 2)^2 + i exp(a) sin(b).
template <class T> std::complex<T> expm1(std::complex<T> z) {
  if (!std::isfinite(z.real()) || !std::isfinite(z.imag())) return std::exp(z) - T(1);
  const T s = std::sin(z.imag() / 2);
  const T re = std::expm1(z.real()) * std::cos(z.imag()) - 2 * s * s;
  return {re, z.imag() == 0 ? z.imag() : std::exp(z.real()) * std::sin(z.imag())};
}
/// log |1 + z| from |1 + z|^2 - 1 = a (2 + a) + b^2, where that is small.
template <class T> std::complex<T> log1p(std::complex<T> z) {
  const T a = z.real(), b = z.imag();
  if (!(std::abs(a) < T(0.5) && std::abs(b) < T(0.5))) return std::log(z + T(1));
  return {std::log1p(a * (2 + a) + b * b) / 2, std::atan2(b, 1 + a)};
}

/// In f64, where squares of f32 neither overflow nor underflow, the sum is rounded once; infinite if a part is.
float absolute(std::complex<float> z) {
  const double a = z.real(), b = z.imag();
  const auto size = static_cast<float>(std::sqrt(a * a + b * b));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return std::fabs(z.real()) == kInfinity || std::fabs(z.imag()) == kInfinity ? kInfinity : size;
}
double absolute(std::complex<double> z) { return std::abs(z); }

/// On the unit circle; 0 where z is.
template <class T> std::complex<T> sign(std::complex<T> z) {
  const T size = absolute(z);
  return size == 0 ? z : z / size;
}

/// f over c64 or c128, returning a complex number, a real one or a bool.
template <class F> void run(const CallArgs& args, double ns, F&& f) {
  const auto as = [&]<class T>() {
    using R = decltype(f(std::complex<T>()));
    for_each_element<R, std::complex<T>>(args, ns, f);
  };
  if (args.inputs[0].dtype == DType::c64)
    as.template operator()<float>();
  else
    as.template operator()<double>();
}

constexpr double kCheap = 2, kRoot = 20, kFunction = 60;

/// A loop in vectors for c64, elements one by one for c128.
template <class F> void in_vectors(const CallArgs& args, double ns, eager::InnerLoop loop, F&& f) {
  if (args.inputs[0].dtype == DType::c64) return ComplexLoopCall<1>(args, loop).run(ns);
  using Z = std::complex<double>;
  for_each_element<decltype(f(Z())), Z>(args, kFunction, f);
}

#define FERMATA_COMPLEX(op, ns, expression) \
  add_complex_kernel(                       \
      Op::op, +[](const CallArgs& args) { run(args, ns, []<class T>(std::complex<T> z) { return expression; }); });

#define FERMATA_COMPLEX_LOOP(op, ns, expression)                                                            \
  add_complex_kernel(                                                                                       \
      Op::op, +[](const CallArgs& args) {                                                                   \
        in_vectors(args, ns, complex_loops_in_use().op, [](std::complex<double> z) { return expression; }); \
      });

}  // namespace

FERMATA_KERNELS(cpu) {
  FERMATA_COMPLEX_LOOP(angle, 1.5, std::arg(z))
  FERMATA_COMPLEX_LOOP(abs, 1, std::abs(z))
  FERMATA_COMPLEX_LOOP(exp, 3, std::exp(z))
  FERMATA_COMPLEX_LOOP(log, 5, std::log(z))
  FERMATA_COMPLEX(positive, kCheap, z)
  FERMATA_COMPLEX(negative, kCheap, -z)
  FERMATA_COMPLEX(conj, kCheap, std::conj(z))
  FERMATA_COMPLEX(real, kCheap, z.real())
  FERMATA_COMPLEX(imag, kCheap, z.imag())
  FERMATA_COMPLEX(square, kCheap, product(z, z))
  FERMATA_COMPLEX(sign, kRoot, sign(z))
  FERMATA_COMPLEX(sqrt, kRoot, std::sqrt(z))
  FERMATA_COMPLEX(rsqrt, kRoot, T(1) / std::sqrt(z))
  FERMATA_COMPLEX(reciprocal, kRoot, std::complex<T>(1) / z)
  FERMATA_COMPLEX(exp2, kFunction, widely(z, [](auto w) { return std::exp(w * std::numbers::ln2_v<Wider<T>>); }))
  FERMATA_COMPLEX(expm1, kFunction, widely(z, [](auto w) { return expm1(w); }))
  FERMATA_COMPLEX(log2, kFunction, widely(z, [](auto w) { return std::log(w) / std::numbers::ln2_v<Wider<T>>; }))
  FERMATA_COMPLEX(log10, kFunction, widely(z, [](auto w) { return std::log(w) / std::numbers::ln10_v<Wider<T>>; }))
  FERMATA_COMPLEX(log1p, kFunction, widely(z, [](auto w) { return log1p(w); }))
  FERMATA_COMPLEX(sin, kFunction, std::sin(z))
  FERMATA_COMPLEX(cos, kFunction, std::cos(z))
  FERMATA_COMPLEX(tan, kFunction, std::tan(z))
  FERMATA_COMPLEX(asin, kFunction, std::asin(z))
  FERMATA_COMPLEX(acos, kFunction, std::acos(z))
  FERMATA_COMPLEX(atan, kFunction, std::atan(z))
  FERMATA_COMPLEX(sinh, kFunction, std::sinh(z))
  FERMATA_COMPLEX(cosh, kFunction, std::cosh(z))
  FERMATA_COMPLEX(asinh, kFunction, std::asinh(z))
  FERMATA_COMPLEX(acosh, kFunction, std::acosh(z))
  FERMATA_COMPLEX(atanh, kFunction, std::atanh(z))
  FERMATA_COMPLEX(tanh, kFunction, std::tanh(z))
  FERMATA_COMPLEX(sigmoid, kFunction, std::complex<T>(1) / (T(1) + std::exp(-z)))
  FERMATA_COMPLEX(round, kCheap, std::complex<T>(std::nearbyint(z.real()), std::nearbyint(z.imag())))
  FERMATA_COMPLEX(isnan, kCheap, std::isnan(z.real()) || std::isnan(z.imag()))
  FERMATA_COMPLEX(isinf, kCheap, std::isinf(z.real()) || std::isinf(z.imag()))
  FERMATA_COMPLEX(isfinite, kCheap, std::isfinite(z.real()) && std::isfinite(z.imag()))
}

}  // namespace fermata
