// The distribution function of the standard normal distribution, its logarithm and its inverse; erfinv.
#pragma once

#include "ir/scalar_math/error_function.h"
#include "ir/scalar_math/logarithm.h"

namespace fermata::math {

/// Phi(x) = Q(-x) below 0, 1 - Q(x) above.
template <class V> V ndtr(V x) {
  const V tail = normal_tail_times(constant<V>(1), min(V(ErrorFunctionOf<V>::kTailMax), abs(x)));
  return select(x < constant<V>(0), tail, select(x == x, constant<V>(1) - tail, x));
}

/// Q(a) e^(a^2 / 2) for a >= 0: by the polynomial of normal_tail_times, and beyond it by the asymptotic series
/// 1 - 1 / a^2 + 1 3 / a^4 - 1 3 5 / a^6 ... of a sqrt(2 pi) Q(a) e^(a^2 / 2) (DLMF 7.12.1).
template <class V> V scaled_normal_tail(V a) {
  using C = ErrorFunctionOf<V>;
  const V near = min(V(C::kTailMax), a), inverse = constant<V>(1) / (near + V(C::kPole));
  const V q = fma(inverse, V(-2 * C::kPole), constant<V>(1));
  const V far_inverse = constant<V>(1) / max(V(C::kTailMax), a), u = far_inverse * far_inverse;
  constexpr std::array<ElementOfValue<V>, 6> kSeries = {-945, 105, -15, 3, -1, 1};
  const V far = far_inverse * polynomial(u, kSeries) * constant<V>(0.3989422804014327);
  return select(a > V(C::kTailMax), far, inverse * polynomial(q, C::kTail));
}

/// log1p(-Q(x)) above 0; log Q(a), a = -x, below, from 1 on as log(Q(a) e^(a^2 / 2)) - a^2 / 2.
template <class V> V log_ndtr(V x) {
  const V a = abs(x), one = constant<V>(1);
  const V tail = normal_tail_times(one, min(V(ErrorFunctionOf<V>::kTailMax), a));
  const auto is_small = a < one;
  const V logarithm = log(select(is_small, tail, scaled_normal_tail(min(constant<V>(0x1p62), a))));
  const V below = fma(select(is_small, constant<V>(0), a * constant<V>(-0.5)), a, logarithm);
  return select(x > constant<V>(0), log1p(-tail), select(x == x, below, x));
}

/// Coefficients of M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied
/// Statistics 37, 1988: PPND16, numerators and denominators for a probability near 1/2, in the tail, and far in it.
struct NormalQuantileConstants {
  static constexpr double kCenter[2][8] = {
      {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
       13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608},
      {5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
       687.1870074920579083, 42.313330701600911252, 1.0}};
  static constexpr double kTail[2][8] = {
      {7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
       3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734},
      {1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
       0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0}};
  static constexpr double kFarTail[2][8] = {
      {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.2426609473880784386e-3, 0.026532189526576123093,
       0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772},
      {2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
       0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0}};
};

template <class V> V polynomial_of(V x, const double (&c)[8]) {
  V sum = constant<V>(c[0]);
  for (std::size_t i = 1; i < 8; ++i) sum = fma(sum, x, constant<V>(c[i]));
  return sum;
}

/// The quantile of the standard normal distribution for probability 1/2 + q. `tail` is the smaller of this probability
/// and its complement, passed separately because it may be small.
template <class V> V normal_quantile(V q, V tail) {
  using C = NormalQuantileConstants;
  const V central = fma(-q, q, constant<V>(0.180625));
  const V r = sqrt(-log(tail)), near = r - constant<V>(1.6), far = r - constant<V>(5);
  const auto is_central = abs(q) <= constant<V>(0.425), is_near = r <= constant<V>(5);
  const auto chosen = [&](int part) {
    return select(is_central, polynomial_of(central, C::kCenter[part]),
                  select(is_near, polynomial_of(near, C::kTail[part]), polynomial_of(far, C::kFarTail[part])));
  };
  const V ratio = chosen(0) / chosen(1);
  const V size = select(tail == constant<V>(0), infinity<V>(), ratio);
  return select(is_central, q * ratio, select(q < constant<V>(0), -size, size));
}

template <class V> V ndtri(V p) { return normal_quantile(p - constant<V>(0.5), min(p, constant<V>(1) - p)); }

template <class V> V erfinv(V x) {
  const V half = x * constant<V>(0.5), tail = fma(abs(x), constant<V>(-0.5), constant<V>(0.5));
  return normal_quantile(half, tail) * constant<V>(0.70710678118654752);
}

}  // namespace fermata::math
