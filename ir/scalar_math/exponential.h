// exp, exp2, expm1 and functions of one exponential: tanh, sigmoid, softplus.
//
// x = n ln 2 + r with |r| <= ln 2 / 2. Polynomials are minimax fits made for this file (Remez exchange, coefficients
// rounded one after another); the errors in the comments are relative and those of the polynomial alone.
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

template <class T> struct ExponentialConstants;
template <> struct ExponentialConstants<float> {
  static constexpr float kLog2E = 1.44269502f, kLn2High = 0.693147182f, kLn2Low = -1.90465421e-9f;
  // e^r, |r| <= ln 2 / 2: 2^-28.2.
  static constexpr std::array kExp = {0.00138365477f, 0.00836913101f, 0.0416681059f, 0.166665167f,
                                      0.49999994f,    1.0f,           1.0f};
  // 2^r, |r| <= 1/2: 2^-27.2.
  static constexpr std::array kExp2 = {0.000158364666f, 0.00134184957f, 0.0096170269f, 0.0555027276f,
                                       0.240226552f,    0.693147242f,   1.0f};
  // (e^r - 1 - r) / r^2, |r| <= ln 2 / 2: 2^-28.2.
  static constexpr std::array kExpm1 = {0.000150462263f, 0.00139305426f, 0.00834150985f,
                                        0.0416665114f,   0.166666359f,   0.5f};
  // 2 atanh(s) = 2 s + s^3 P(s^2), s <= 1/3: 2^-33.
  static constexpr std::array kAtanh = {0.24246344f, 0.214437187f, 0.286152184f, 0.399989486f, 0.666666746f};
  static constexpr float kExpMin = -104.5f, kExpMax = 89.0f;             // 0 below, infinity above
  static constexpr float kExpNormalMin = -87.0f, kExpNormalMax = 88.0f;  // normal numbers between, with one factor 2^n
  static constexpr float kExp2Min = -151.0f, kExp2Max = 129.0f;
  static constexpr float kExpm1Min = -20.0f;  // -1 below
  static constexpr float kTanhMax = 10.0f;    // 1 above
};
template <> struct ExponentialConstants<double> {
  static constexpr double kLog2E = 1.4426950408889634, kLn2High = 0.69314718055994529, kLn2Low = 2.3190468138462996e-17;
  // e^r, |r| <= ln 2 / 2: 2^-55.2.
  static constexpr std::array kExp = {2.2976552597364392e-08,
                                      2.7622356338012777e-07,
                                      2.7563870217237331e-06,
                                      2.4801516062000599e-05,
                                      0.00019841262644428403,
                                      0.0013888888920702554,
                                      0.0083333333365471895,
                                      0.041666666666619598,
                                      0.1666666666666192,
                                      0.5,
                                      1.0,
                                      1.0};
  // 2^r, |r| <= 1/2: 2^-54.4.
  static constexpr std::array kExp2 = {4.0780566423139472e-10, 7.0725775265703557e-09, 1.0180648802883168e-07,
                                       1.3215442639785544e-06, 1.5252727379760376e-05, 0.00015403530441630411,
                                       0.0013333558153448687,  0.009618129107606968,   0.055504108664790344,
                                       0.24022650695910097,    0.69314718055994573,    1.0};
  // (e^r - 1 - r) / r^2, |r| <= ln 2 / 2: 2^-58.9.
  static constexpr std::array kExpm1 = {2.0960419204349585e-09,
                                        2.511056989909064e-08,
                                        2.7557149307295779e-07,
                                        2.7557240082544093e-06,
                                        2.4801587440787971e-05,
                                        0.00019841269889905595,
                                        0.0013888888888842238,
                                        0.0083333333333202898,
                                        0.041666666666666713,
                                        0.16666666666666677,
                                        0.5};
  // 2 atanh(s) = 2 s + s^3 P(s^2), s <= 1/3: 2^-58.8.
  static constexpr std::array kAtanh = {
      0.15746801219973589, 0.047128912351470396, 0.094096573956020335, 0.094250353948768309, 0.10535569187163904,
      0.11764103029920026, 0.13333360810862135,  0.15384614517357242,  0.18181818200266234,  0.22222222221970467,
      0.28571428571430596, 0.39999999999999991,  0.66666666666666663};
  static constexpr double kExpMin = -746.0, kExpMax = 710.0;
  static constexpr double kExpNormalMin = -708.0, kExpNormalMax = 709.0;
  static constexpr double kExp2Min = -1080.0, kExp2Max = 1025.0;
  static constexpr double kExpm1Min = -40.0;
  static constexpr double kTanhMax = 20.0;
};
template <class V> using ExponentialOf = ExponentialConstants<ElementOfValue<V>>;

/// x - n ln 2, exact to well below an ulp of the result.
template <class V> V subtract_multiple_of_ln2(V x, V n) {
  using C = ExponentialOf<V>;
  return fma(n, V(-C::kLn2Low), fma(n, V(-C::kLn2High), x));
}

/// e^x where the result is far from overflow and from the subnormals: |x| <= 87 (700 for f64).
template <class V> V exp_in_range(V x) {
  using C = ExponentialOf<V>;
  const V round = V(kRoundToExponent<ElementOfValue<V>>);
  const V shifted = fma(x, V(C::kLog2E), round);
  const V r = subtract_multiple_of_ln2(x, shifted - round);
  return polynomial(r, C::kExp) * power_of_two<V>(bits_of(shifted));
}

/// Rounds to an integer n that times_power_of_two can take.
template <class V> V split_round() {
  using T = ElementOfValue<V>;
  return V(kRoundToExponent<T> + static_cast<T>(FormatOf<V>::kBias));
}
/// p 2^n, given n + split_round. Two factors share n, so that overflow and subnormals are rounded once.
template <class V> V times_power_of_two(V p, V shifted) {
  using U = typename FormatOf<V>::Unsigned;
  const UnsignedBits<V> both = bits_of(shifted), half = both >> UnsignedBits<V>(U{1});
  return p * power_of_two<V>(half) * power_of_two<V>(both - half);
}

/// p 2^n for n <= 0 and 0 <= p <= 1 (NaN gives anything), given n + split_round. A product with a subnormal or zero
/// result takes processors some hundred cycles. Here it is computed 2^64 times larger and scaled down by integer
/// operations on its bits: the bits of a subnormal are those of its sum with a number whose last place is that of
/// subnormals.
template <class V> V times_negative_power_of_two(V p, V shifted) {
  using F = FormatOf<V>;
  using U = typename F::Unsigned;
  constexpr U kUp = 64, kLeastExponent = U{1} + kUp;  // of a normal number, 2^64 times larger, with bias
  const V large = p * power_of_two<V>(bits_of(shifted) - UnsignedBits<V>(static_cast<U>(F::kBias) - kUp));
  const UnsignedBits<V> least(kLeastExponent << F::kMantissaBits), up(kUp << F::kMantissaBits);
  const V normal = from_bits<V>(bits_of(large) - up);
  const V subnormal = from_bits<V>(bits_of(large + from_bits<V>(least)) - least);
  return select(large < from_bits<V>(least), subnormal, normal);
}

/// e^x = value 2^n.
template <class V> struct SplitExponential {
  V value, shifted;  // n + split_round
};
/// For x <= kExpMax; NaN propagates into the value. If the result is 0, so is the value, and the products are exact.
template <class V> SplitExponential<V> split_exp(V x) {
  using C = ExponentialOf<V>;
  const V clamped = max(V(C::kExpMin), x);
  const V round = split_round<V>();
  const V shifted = fma(clamped, V(C::kLog2E), round);
  const V r = subtract_multiple_of_ln2(clamped, shifted - round);
  return {select(x < V(C::kExpMin), constant<V>(0), polynomial(r, C::kExp)), shifted};
}

/// e^x for x <= kExpMax. NaN propagates through the products.
template <class V> V exp_below_limit(V x) {
  const SplitExponential<V> e = split_exp(x);
  return times_power_of_two(e.value, e.shifted);
}

/// e^x of any x. A product with a subnormal result takes processors some hundred cycles: where x < 0, it is computed
/// 2^64 times larger (times_negative_power_of_two).
template <class V> V exp_of_any(V x) {
  using C = ExponentialOf<V>;
  using F = FormatOf<V>;
  using U = typename F::Unsigned;
  using B = UnsignedBits<V>;
  constexpr U kUp = 64, kLeast = (U{1} + kUp) << F::kMantissaBits;
  const V clamped = max(V(C::kExpMin), min(V(C::kExpMax), x));
  const V round = V(kRoundToExponent<ElementOfValue<V>> - ElementOfValue<V>(1));
  const V shifted = fma(clamped, V(C::kLog2E), round);  // n - 1: 2^n overflows for the largest n
  const V r = subtract_multiple_of_ln2(clamped, shifted - round);
  const B up = select(x < constant<V>(0), B(kUp << F::kMantissaBits), B(U{0}));
  const V p = polynomial(r, C::kExp);
  const V large = (p + p) * from_bits<V>((bits_of(shifted) << B(static_cast<U>(F::kMantissaBits))) + up);
  const V least(std::bit_cast<ElementOfValue<V>>(kLeast));
  const V subnormal = from_bits<V>(bits_of(large + least) - B(kLeast));
  return select(large < least, subnormal, from_bits<V>(bits_of(large) - up));
}

/// Results that are subnormal, or near infinity, are rare, and so is NaN.
template <class V> V exp(V x) {
  using C = ExponentialOf<V>;
  const auto is_below = x < V(C::kExpNormalMin);
  const auto is_usual = (x <= V(C::kExpNormalMax)) & ((!is_below) | (x <= V(C::kExpMin)));
  const V usual = select(is_below, constant<V>(0), exp_in_range(max(V(C::kExpNormalMin), x)));
  if (are_all(is_usual)) return usual;
  return select_quick(is_usual, usual, exp_of_any(x));
}

/// 2^(x + low) for |low| well below 1. Exact at integers.
template <class V> V exp2_of_sum(V x, V low) {
  using C = ExponentialOf<V>;
  x = max(V(C::kExp2Min), min(V(C::kExp2Max), x));
  const V round = split_round<V>();
  const V shifted = x + round;
  const V r = (x - (shifted - round)) + low;
  return times_power_of_two(polynomial(r, C::kExp2), shifted);
}
template <class V> V exp2(V x) { return exp2_of_sum(x, constant<V>(0)); }

template <class V> V expm1(V x) {
  using C = ExponentialOf<V>;
  const V clamped = max(V(C::kExpm1Min), min(V(C::kExpMax), x));
  const V round = V(kRoundToExponent<ElementOfValue<V>> - ElementOfValue<V>(1));
  const V shifted = fma(clamped, V(C::kLog2E), round);
  const V n = shifted - round;
  const V r = subtract_multiple_of_ln2(clamped, n);
  const V q = fma(polynomial(r, C::kExpm1) * r, r, r);     // e^r - 1
  const V half_scale = power_of_two<V>(bits_of(shifted));  // 2^(n - 1), finite for the largest n
  const V half_result = fma(half_scale, q, half_scale - constant<V>(0.5));
  return with_sign_of(select(n == constant<V>(0), q, half_result + half_result), x);
}

/// tanh |x| = em1 / (em1 + 2) with em1 = e^(2 |x|) - 1.
template <class V> V tanh(V x) {
  using C = ExponentialOf<V>;
  const V magnitude = min(V(C::kTanhMax), abs(x));
  const V twice = magnitude + magnitude;
  const V round = V(kRoundToExponent<ElementOfValue<V>>);
  const V shifted = fma(twice, V(C::kLog2E), round);
  const V r = subtract_multiple_of_ln2(twice, shifted - round);
  const V q = fma(polynomial(r, C::kExpm1) * r, r, r);
  const V scale = power_of_two<V>(bits_of(shifted));
  const V em1 = fma(scale, q, scale - constant<V>(1));
  return with_sign_of(em1 / (em1 + constant<V>(2)), x);
}

/// e^x / (1 + e^x) or 1 / (1 + e^-x), whichever has the exponential at most 1: accurate down to the subnormals.
template <class V> V sigmoid(V x) {
  const V one = constant<V>(1);
  const V e = exp_below_limit(-abs(x));
  return select(x < constant<V>(0), e, one) / (one + e);
}

/// max(x, 0) + log1p(e^-|x|), the logarithm as 2 atanh(e / (2 + e)). Negligible powers of s are skipped, because they
/// would underflow, which is slow.
template <class V> V softplus(V x) {
  using C = ExponentialOf<V>;
  const V e = exp_below_limit(-abs(x));
  const V twice = (e + e) / (constant<V>(2) + e);
  const V s = twice * constant<V>(0.5), least = constant<V>(0x1p-30), kept = max(least, s), z = kept * kept;
  const V cube = select(s < least, constant<V>(0), z * kept);
  return max(constant<V>(0), x) + fma(cube, polynomial(z, C::kAtanh), twice);
}

}  // namespace fermata::math
