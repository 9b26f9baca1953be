// asin, acos, atan and atan2: odd series on a short interval, and the identities that lead there.
//
// atan t = pi/4 + atan((t - 1) / (t + 1)) and pi/2 + atan(-1 / t); acos t = 2 asin(sqrt((1 - t) / 2)). The series are
// Chebyshev fits of (f(s) / s - 1) / s^2 in s^2. Multiples of pi/4 come with their low parts.
#pragma once

#include "ir/scalar_math/arithmetic.h"

namespace fermata::math {

template <class T> struct InverseTrigonometricConstants;
template <> struct InverseTrigonometricConstants<float> {
  static constexpr float kTanPi8 = 0.414213568f, kTan3Pi8 = 2.41421366f;
  static constexpr float kPi4 = 0.785398185f, kPi4Low = -2.18556941e-08f;
  static constexpr float kPi2 = 1.57079637f, kPi2Low = -4.37113883e-08f;
  static constexpr float kPi = 3.14159274f, kPiLow = -8.74227766e-08f;
  // 2^-28.5 on [0, tan(pi/8)], 2^-29.8 on [0, 1/2].
  static constexpr std::array kAtan = {-0.0645192787f, 0.107437313f, -0.142639562f, 0.199995399f, -0.333333313f};
  static constexpr std::array kAsin = {0.0336908475f, 0.0171492379f, 0.0311006624f,
                                       0.0445994027f, 0.0750009418f, 0.166666657f};
};
template <> struct InverseTrigonometricConstants<double> {
  static constexpr double kTanPi8 = 0.41421356237309503, kTan3Pi8 = 2.414213562373095;
  static constexpr double kPi4 = 0.7853981633974483, kPi4Low = 3.061616997868383e-17;
  static constexpr double kPi2 = 1.5707963267948966, kPi2Low = 6.123233995736766e-17;
  static constexpr double kPi = 3.141592653589793, kPiLow = 1.2246467991473532e-16;
  // 2^-57.4, 2^-61.8.
  static constexpr std::array kAtan = {-0.01917688711906226, 0.03923165829558719,  -0.0508544973794026,
                                       0.0585814891280221,   -0.06664511447381948, 0.07692183190826087,
                                       -0.09090904578123903, 0.11111111015256361,  -0.14285714284666542,
                                       0.1999999999999552,   -0.3333333333333333};
  static constexpr std::array kAsin = {
      0.02961201126495512,  -0.01924167174674304, 0.019554513336123378, 0.0030448799094556773, 0.009319560794767446,
      0.009621842970100282, 0.011566459612121669, 0.01396378001220357,  0.017352816540325496,  0.02237215744350722,
      0.03038194447553234,  0.044642857142551895, 0.07500000000000118,  0.16666666666666666};
};
template <class V> using InverseTrigonometricOf = InverseTrigonometricConstants<ElementOfValue<V>>;

template <class V> V atan(V x) {
  using C = InverseTrigonometricOf<V>;
  const V t = abs(x), one = constant<V>(1), zero = constant<V>(0);
  const auto middle = t > V(C::kTanPi8), far = t > V(C::kTan3Pi8);
  const V numerator = select(far, -one, select(middle, t - one, t));
  const V denominator = select(far, t, select(middle, t + one, one));
  const V s = numerator / denominator, z = s * s;
  const V base = select(far, V(C::kPi2), select(middle, V(C::kPi4), zero));
  const V low = select(far, V(C::kPi2Low), select(middle, V(C::kPi4Low), zero));
  return with_sign_of(base + (s + fma(s * z, polynomial(z, C::kAtan), low)), x);
}

/// The angle of the point (x, y), with the signed zeros of IEEE 754-2019, section 9.2.1.
template <class V> V atan2(V y, V x) {
  using C = InverseTrigonometricOf<V>;
  const V a = abs(y), b = abs(x);
  const auto steep = a > b;
  const V small = select(steep, b, a), large = select(steep, a, b);
  const V ratio = select(small == large, select(large == constant<V>(0), large, constant<V>(1)), small / large);
  const V eighth = atan(ratio);
  const V quarter = select(steep, V(C::kPi2) - (eighth - V(C::kPi2Low)), eighth);
  const auto left = bitcast<typename FormatOf<V>::Signed>(x) < SignedBits<V>(typename FormatOf<V>::Signed{0});
  const V half = select(left, V(C::kPi) - (quarter - V(C::kPiLow)), quarter);
  return select((x != x) | (y != y), x + y, with_sign_of(half, y));
}

/// asin s = s + s z P(z), z = s^2, for s up to 1/2: the terms after s.
template <class V> V asin_tail(V s, V z) { return s * z * polynomial(z, InverseTrigonometricOf<V>::kAsin); }

template <class V> V asin(V x) {
  using C = InverseTrigonometricOf<V>;
  const V t = abs(x), half = constant<V>(0.5), two = constant<V>(2);
  const auto near = t < half;
  const V z = select(near, t * t, (constant<V>(1) - t) * half), s = select(near, t, sqrt(z));
  const V tail = asin_tail(s, z);
  return with_sign_of(select(near, s + tail, V(C::kPi2) - (two * s + fma(two, tail, V(-C::kPi2Low)))), x);
}

template <class V> V acos(V x) {
  using C = InverseTrigonometricOf<V>;
  const V t = abs(x), half = constant<V>(0.5), two = constant<V>(2);
  const auto near = t < half;
  const V z = select(near, t * t, (constant<V>(1) - t) * half), s = select(near, x, sqrt(z));
  const V tail = asin_tail(s, z);
  const V twice = fma(two, tail, two * s);
  const V far = select(x < constant<V>(0), V(C::kPi) - (twice - V(C::kPiLow)), twice);
  return select(near, V(C::kPi2) - (s + (tail - V(C::kPi2Low))), far);
}

}  // namespace fermata::math
