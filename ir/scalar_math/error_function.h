// erf, erfc and gelu, all from Q(a), the upper tail of the standard normal distribution.
//
// Q(a) = e^(-a^2 / 2) R(a), where R falls slowly; (a + k) R(a) is a polynomial in (a - k) / (a + k) (the
// transformation of M. M. Shepherd and J. G. Laframboise, Math. Comp. 36, 1981). The rounding error of a^2 is put
// back, so the tail keeps its relative accuracy down to the subnormals and nothing cancels.
#pragma once

#include "ir/scalar_math/exponential.h"

namespace fermata::math {

template <class T> struct ErrorFunctionConstants;
template <> struct ErrorFunctionConstants<float> {
  static constexpr float kTailMax = 15.0f, kPole = 4.0f;
  // 2^-25.6 for a <= 15.
  static constexpr std::array kTail = {-0.000109429282f, 0.000209819205f, 0.00155538495f, -0.00353908585f,
                                       -0.00752233667f,  0.0604111888f,   -0.186523765f,  0.387136251f,
                                       -0.607896566f,    0.755285144f};
  // erf t = t + t P(t^2) for t <= kErfSplit; 1 - e^(t R(t) - t) above, to kErfMax.
  static constexpr float kErfSplit = 0.927734375f, kErfMax = 4.0f;
  static constexpr std::array kErfNear = {-5.96761703e-4f, 4.99119423e-3f,  -2.67681349e-2f,
                                          1.12819925e-1f,  -3.76125336e-1f, 1.28379166e-1f};
  static constexpr std::array kErfFar = {-1.72853470e-5f, 3.83197126e-4f,  -3.88396438e-3f, 2.42546219e-2f,
                                         -1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f};
};
template <> struct ErrorFunctionConstants<double> {
  static constexpr double kTailMax = 39.0, kPole = 5.0;
  // 2^-54.1 for a <= 39.
  static constexpr std::array kTail = {
      2.2734614130488446e-09, 7.614773658209783e-09,   -1.0948273419004987e-08, -6.6764447162121969e-08,
      4.4455074134509766e-08, 4.3474790373989298e-07,  -3.3822655010446554e-07, -2.7706951661929537e-06,
      3.9816262837847971e-06, 1.6681939394024891e-05,  -4.9763019782709709e-05, -5.9375951497457593e-05,
      0.00054489910224123181, -0.00079786935694754302, -0.0029933767749571339,  0.020795066795486161,
      -0.069118638705970223,  0.1650203661706178,      -0.3135331566713187,     0.49530561596997169,
      -0.66538250289005652,   0.76919304975006297};
  static constexpr double kErfSplit = 0.75, kErfMax = 6.0;
  static constexpr std::array kErfNear = {1.1463234992576326e-08,  -1.5937459630987379e-07, 1.6430372230938777e-06,
                                          -1.4924175632107758e-05, 0.00012055288739144722,  -0.00085483261682015445,
                                          0.0052239776151096848,   -0.026866170644401458,   0.11283791670952477,
                                          -0.37612638903183715,    0.12837916709551259};
};
template <class V> using ErrorFunctionOf = ErrorFunctionConstants<ElementOfValue<V>>;

/// factor * Q(a + low), at most 1, for 0 <= a <= kTailMax and |low| at most an ulp of a. The power of two of the
/// exponential comes last, as the result may be subnormal. The relative error of 1 / (a + k) is measured and put back
/// as well.
template <class V> V normal_tail_times(V factor, V a, V low_of_a = constant<V>(0)) {
  using C = ErrorFunctionOf<V>;
  const V sum = a + V(C::kPole), sum_low = a - (sum - V(C::kPole));
  const V inverse = constant<V>(1) / sum;
  const V correction = fma(-inverse, sum_low, fma(-inverse, sum, constant<V>(1)));
  const V pole = V(-2 * C::kPole);
  const V q = fma(inverse * correction, pole, fma(inverse, pole, constant<V>(1)));
  const Pair<V> square = two_product(a, a);
  const SplitExponential<V> e = split_exp(square.high * constant<V>(-0.5));
  const Pair<V> series = polynomial_pair(q, C::kTail);
  const Pair<V> weight = two_product(factor, inverse);
  const V scaled = weight.high * series.high;
  const V relative = fma(-a, low_of_a, fma(square.low, constant<V>(-0.5), correction));
  const V low = fma(weight.high, series.low, fma(weight.low, series.high, scaled * relative));
  return times_negative_power_of_two(fma(low, e.value, scaled * e.value), e.shifted);
}

template <class V> V erf(V x) {
  using C = ErrorFunctionOf<V>;
  const V t = min(V(C::kErfMax), abs(x)), square = t * t;
  const V near = fma(polynomial(square, C::kErfNear), t, t);
  V far = t;
  if constexpr (is_double_value<V>) {
    far = constant<V>(1) - normal_tail_times(constant<V>(2), t * constant<V>(1.4142135623730951));
  } else {
    far = constant<V>(1) - exp_in_range(fma(polynomial(t, C::kErfFar), t, -t));
  }
  return with_sign_of(select(t > V(C::kErfSplit), far, near), x);
}

/// 2 Q(sqrt(2) x), or 2 less that of -x. The root of 2 times |x| is a pair: an error of it would count x^2 times.
template <class V> V erfc(V x) {
  constexpr double kRoot2 = 1.4142135623730950488;
  const V root = constant<V>(kRoot2);
  const V root_low = constant<V>(is_double_value<V> ? -9.6672933134529135e-17 : 2.4203234972266154e-8);
  const V magnitude = min(constant<V>(is_double_value<V> ? 27.5 : 10.6), abs(x));
  Pair<V> a = two_product(magnitude, root);
  a.low = fma(magnitude, root_low, a.low);
  const V tail = normal_tail_times(constant<V>(2), a.high, a.low);
  const V value = select(x < constant<V>(0), constant<V>(2) - tail, tail);
  return select(x != x, x, value);
}

/// x Phi(x) = max(x, 0) - |x| Q(|x|), for either sign of x.
template <class V> V gelu(V x) {
  using C = ErrorFunctionOf<V>;
  const V a = min(V(C::kTailMax), abs(x));
  return max(constant<V>(0), x) - normal_tail_times(a, a);
}

}  // namespace fermata::math
