// Special functions: of probability, of the gamma and Bessel families, and some of numbers.
//
// Operands are tensors or C++ numbers, and broadcast. f32 and f64 stay, integers and bool become f32; f16 and bf16 are
// computed in f32. Those that are formulas fuse with their neighbors as exp() does. Beside each one the largest error
// in units of the last place, f32 and f64, as tests/conformance/special_golden_test.cpp measures it. Sources:
// SciPy 1.17, scipy.special, for names and limits; DLMF for definitions.
#pragma once

#include <optional>

#include "runtime/operand.h"

namespace fermata {

// ---- Gamma and its relatives

/// log |Gamma(x)|; infinity at 0, -1, -2, ... 3.5, 5; below zero absolute, near its zeros.
Tensor lgamma(const Operand& x);
/// The derivative of lgamma; NaN at -1, -2, ... 2, 2; below zero absolute, near its zeros.
Tensor digamma(const Operand& x);
/// The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x).
///
/// Errors   ValueError FM1410 unless n is 0 to 170.
Tensor polygamma(std::int64_t n, const Operand& x);
/// The Hurwitz zeta function, the sum of (q + k)^-s for k = 0, 1, 2, ...; infinity for s = 1 and at the poles in q, NaN
/// for s below 1 and, unless s is an integer, for q below 0. The derivative by s raises GradientError.
Tensor zeta(const Operand& s, const Operand& q);
/// The regularized lower incomplete gamma function P(a, x), and the upper one Q(a, x) = 1 - P(a, x); NaN for negative
/// operands. The derivative by a raises GradientError.
Tensor gammainc(const Operand& a, const Operand& x);
Tensor gammaincc(const Operand& a, const Operand& x);
/// The regularized incomplete beta function I_x(a, b); NaN unless a > 0, b > 0 and 0 <= x <= 1. The derivatives by a
/// and b raise GradientError.
Tensor betainc(const Operand& a, const Operand& b, const Operand& x);

// ---- Bessel functions of orders 0 and 1

/// Of the first kind. Absolute error 4 * 2^-24 and 3 * 2^-53.
Tensor j0(const Operand& x);
Tensor j1(const Operand& x);
/// Modified, of the first kind. 3, 3.
Tensor i0(const Operand& x);
Tensor i1(const Operand& x);
/// The same times exp(-|x|), which does not overflow. 3, 2.5.
Tensor i0e(const Operand& x);
Tensor i1e(const Operand& x);

// ---- The normal distribution

/// The share of a standard normal distribution below x. 2, 3.
Tensor ndtr(const Operand& x);
/// Its logarithm, also where ndtr(x) underflows. 3, 3.
Tensor log_ndtr(const Operand& x);
/// The x that a share p lies below; infinite for 0 and 1, NaN outside. 3.5, 3.
Tensor ndtri(const Operand& p);
/// The inverse of erf; infinite for -1 and 1, NaN outside. 4, 5.
Tensor erfinv(const Operand& x);

// ---- Logarithms

/// x log(y), and x log1p(y); 0 where x is 0, whatever y but for NaN.
Tensor xlogy(const Operand& x, const Operand& y);
Tensor xlog1py(const Operand& x, const Operand& y);
/// -x log(x); 0 at 0, -infinity below.
Tensor entr(const Operand& x);

// ---- Of numbers and their parts

/// sin(pi x) / (pi x), 1 at 0. 3.5, 3.
Tensor sinc(const Operand& x);
/// 0 below zero, `value` at zero, 1 above; NaN stays.
Tensor heaviside(const Operand& x, const Operand& value);
/// x 2^exponent, rounded once; exponents are whole numbers, of any dtype.
Tensor ldexp(const Operand& x, const Operand& exponent);
struct FractionAndExponent {
  Tensor fraction;  // 1/2 <= |fraction| < 1; x itself where it is 0, infinite or NaN
  Tensor exponent;  // i32, 0 there
};
/// x as fraction 2^exponent.
FractionAndExponent frexp(const Operand& x);
/// x with NaN replaced by a number and infinities by others, by default the largest finite ones. Integers stay.
Tensor nan_to_num(const Operand& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
/// The largest number that divides both, and the least that both divide; not negative. gcd(0, 0) and lcm(x, 0) are 0.
///
/// DType    integers. What does not fit wraps.
Tensor gcd(const Operand& x, const Operand& y);
Tensor lcm(const Operand& x, const Operand& y);

}  // namespace fermata
