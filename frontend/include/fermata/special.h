// Special functions: probability, gamma and Bessel families, and number theory.
//
// Operands are tensors or C++ numbers, and broadcast. f32 and f64 keep their dtype; integers and bool become f32; f16
// and bf16 are computed in f32. Functions with a single formula are rows of the op table, declared in fermata/ops.h:
// lgamma, digamma, j0, j1, i0, i1, i0e, i1e, ndtr, log_ndtr, ndtri, erfinv, xlogy, xlog1py, entr, sinc, heaviside and
// ldexp (ir/ops/special.def). docs/numerics.md has their errors. Sources: SciPy 1.17, scipy.special, for names and
// limits; DLMF for definitions.
#pragma once

#include <optional>

#include "runtime/operand.h"

namespace fermata {

// ---- Gamma functions

/// The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x).
///
/// Errors   ValueError FM1410 unless n is 0 to 170.
Tensor polygamma(std::int64_t n, const Operand& x);
/// The Hurwitz zeta function, the sum of (q + k)^-s for k = 0, 1, 2, ...; infinity for s = 1 and at the poles in q, NaN
/// for s below 1 and, unless s is an integer, for q below 0. Derivatives with respect to s are not differentiable.
Tensor zeta(const Operand& s, const Operand& q);
/// The regularized lower incomplete gamma function P(a, x), and the upper one Q(a, x) = 1 - P(a, x); NaN for negative
/// operands. Derivatives with respect to a are not differentiable.
Tensor gammainc(const Operand& a, const Operand& x);
Tensor gammaincc(const Operand& a, const Operand& x);
/// The regularized incomplete beta function I_x(a, b); NaN unless a > 0, b > 0 and 0 <= x <= 1. Derivatives with
/// respect to a and b are not differentiable.
Tensor betainc(const Operand& a, const Operand& b, const Operand& x);

// ---- Numbers and their parts

struct FractionAndExponent {
  Tensor fraction;  // 1/2 <= |fraction| < 1; x itself if it is 0, infinite or NaN
  Tensor exponent;  // i32; 0 in these cases
};
/// x as fraction 2^exponent.
FractionAndExponent frexp(const Operand& x);
/// Replaces NaN by `nan` and infinities by the given numbers, by default the largest finite ones. Integers are
/// unchanged.
Tensor nan_to_num(const Operand& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
/// Greatest common divisor and least common multiple, not negative. gcd(0, 0) and lcm(x, 0) are 0.
///
/// DType    integers; results wrap on overflow.
Tensor gcd(const Operand& x, const Operand& y);
Tensor lcm(const Operand& x, const Operand& y);

}  // namespace fermata
