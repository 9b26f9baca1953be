// sinh, cosh and the inverse hyperbolic functions, from exp, expm1 and log1p. tanh is in exponential.h.
//
// The forms are those of fdlibm (Sun Microsystems, 1993): every subtraction that would cancel is inside expm1 or log1p.
#pragma once

#include "ir/scalar_math/exponential.h"
#include "ir/scalar_math/logarithm.h"

namespace fermata::math {

template <class T> struct HyperbolicConstants;
template <> struct HyperbolicConstants<float> {
  static constexpr float kSplit = 80.0f;         // e^t is finite below; above, e^-t is negligible
  static constexpr float kSquareLost = 0x1p13f;  // t^2 + 1 is t^2 above
};
template <> struct HyperbolicConstants<double> { static constexpr double kSplit = 700.0, kSquareLost = 0x1p28; };
template <class V> using HyperbolicOf = HyperbolicConstants<ElementOfValue<V>>;

/// e^t / 2 for large t, without premature overflow.
template <class V> V half_of_large_exp(V t) {
  const V root = exp(t * constant<V>(0.5));
  return (root * constant<V>(0.5)) * root;
}

template <class V> V sinh(V x) {
  const V t = abs(x), limit = V(HyperbolicOf<V>::kSplit), half = constant<V>(0.5), one = constant<V>(1);
  const V bounded = select(t > limit, limit, t);
  const V e = expm1(bounded);
  const V small = half * (e + e / (e + one));
  return with_sign_of(select(t > limit, half_of_large_exp(t), small), x);
}

template <class V> V cosh(V x) {
  const V t = abs(x), limit = V(HyperbolicOf<V>::kSplit), half = constant<V>(0.5);
  const V e = exp(select(t > limit, limit, t));
  return select(t > limit, half_of_large_exp(t), fma(half, e, half / e));
}

/// log(2 t) for large t.
template <class V> V log_of_twice(V t) { return log(t) + constant<V>(0.6931471805599453); }

template <class V> V asinh(V x) {
  const V t = abs(x), one = constant<V>(1);
  const auto large = t > V(HyperbolicOf<V>::kSquareLost);
  const V bounded = select(large, one, t), z = bounded * bounded;
  const V value = log1p(bounded + z / (one + sqrt(one + z)));
  return with_sign_of(select(large, log_of_twice(t), value), x);
}

template <class V> V acosh(V x) {
  const V one = constant<V>(1);
  const auto large = x > V(HyperbolicOf<V>::kSquareLost);
  const V t = select(large, one, x) - one;
  const V value = log1p(t + sqrt(fma(t, t, t + t)));
  return select(large, log_of_twice(x), select(x >= one, value, quiet_nan<V>()));
}

template <class V> V atanh(V x) {
  const V t = abs(x), one = constant<V>(1);
  const V twice = t + t;
  const V argument = select(t < constant<V>(0.5), fma(twice, t / (one - t), twice), twice / (one - t));
  return with_sign_of(constant<V>(0.5) * log1p(argument), x);
}

}  // namespace fermata::math
