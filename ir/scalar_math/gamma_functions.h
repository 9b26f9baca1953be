// lgamma and digamma of real numbers, and angles in half turns.
//
// Polynomials are interpolations at Chebyshev points computed for this file with 40 digits (coefficients rounded one
// after another); errors in the comments are relative, of the polynomial alone.
#pragma once

#include "ir/scalar_math/logarithm.h"
#include "ir/scalar_math/trigonometric.h"

namespace fermata::math {

/// The angle pi x for x >= 0; exact except for the product with pi.
template <class V> QuadrantAngle<V> reduce_half_turns(V x) {
  using C = TrigonometricOf<V>;
  const V within = x - constant<V>(2) * floor(x * constant<V>(0.5));
  const V round = V(kRoundToInteger<ElementOfValue<V>>);
  const V shifted = fma(within, constant<V>(2), round);
  const V r = fma(within, constant<V>(2), round - shifted);
  return {fma(r, V(C::kPiOver2[0]), r * V(C::kPiOver2[1])), bits_of(shifted)};
}
/// sin(pi x) and cos(pi x) of a number that is not negative.
template <class V> struct SineAndCosine { V sine, cosine; };
template <class V> SineAndCosine<V> of_angle(QuadrantAngle<V> angle) {
  using U = typename FormatOf<V>::Unsigned;
  const UnsignedBits<V> none(U{0}), one(U{1});
  return {sine_of_quadrant(angle, none), sine_of_quadrant<V>({angle.r, angle.quadrant + one}, none)};
}

/// sin(pi x) / (pi x), 1 at 0.
template <class V> V sinc(V x) {
  using U = typename FormatOf<V>::Unsigned;
  const V a = abs(x), sine = sine_of_quadrant(reduce_half_turns(a), UnsignedBits<V>(U{0}));
  const V value = sine / (a * constant<V>(3.14159265358979324));
  return select(a < constant<V>(0x1p-30), constant<V>(1), select(a == infinity<V>(), constant<V>(0), value));
}

template <class T> struct GammaConstants;
template <> struct GammaConstants<float> {
  // log(Gamma(2 + z)) / z for |z| <= 1/2: 2^-27.7.
  static constexpr std::array kLogGammaNear = {-0.000250562036f, 0.000570251257f, -0.00118748483f,
                                               0.00287886872f,   -0.00738592073f, 0.0205816254f,
                                               -0.0673522949f,   0.322467029f,    0.422784328f};
  // (log(Gamma(x)) - (x - 1/2) log x + x - log(2 pi) / 2) x in 1 / x^2 for x >= 8: 2^-30.
  static constexpr std::array kLogGammaFar = {0.000780034694f, -0.00277769845f, 0.0833333358f};
  // digamma(x) / (x - root) in x - 3/2 for 1 <= x <= 2: 2^-27.9.
  static constexpr std::array kDigammaNear = {0.0109025883f, -0.0163736194f, 0.0171149895f, -0.0257868841f,
                                              0.0408500284f, -0.0620559789f, 0.0949846879f, -0.148398861f,
                                              0.240542531f,  -0.423627496f,  0.951055884f};
  // (log x - 1 / (2 x) - digamma(x)) x^2 in 1 / x^2 for x >= 10: 2^-20.7, of a part that is at most 2^-11 of the sum.
  static constexpr std::array kDigammaFar = {-0.0082940096f, 0.0833332837f};
  static constexpr float kRoot = 1.46163213f, kRootLow = 1.24381499e-08f;  // of digamma
};
template <> struct GammaConstants<double> {
  // 2^-58.5.
  static constexpr std::array kLogGammaNear = {
      -1.3219945666117874e-07, 2.78740805211359e-07,  -4.3252393445604814e-07, 9.200527894968101e-07,
      -2.0439048107029907e-06, 4.38470440459836e-06,  -9.438715099211532e-06,  2.0505590755833454e-05,
      -4.49263133791557e-05,   9.945767355819498e-05, -0.00022315475400520507, 0.0005096695154115458,
      -0.0011927539118428156,  0.002890510331034267,  -0.0073855510286719986,  0.02058080842778038,
      -0.0673523010531981,     0.32246703342411326,   0.42278433509846713};
  // 2^-51, of a part that is at most 2^-9 of the sum.
  static constexpr std::array kLogGammaFar = {-0.0016526004301122236, 0.000837283450542408,  -0.0005952025951698658,
                                              0.0007936506649487538,  -0.002777777777606244, 0.0833333333333333};
  // 2^-58.4.
  static constexpr std::array kDigammaNear = {
      0.00011881232908510335, -0.0001782188548855923,  9.653646261410062e-05, -0.00014480643368061614,
      0.00032395945401345196, -0.00048595039220036254, 0.0006909255761282986, -0.0010364584817312839,
      0.0015633696313653504,  -0.0023454947397380833,  0.003518106563802472,  -0.005279937255532708,
      0.007927021796868154,   -0.011908220105959716,   0.017907248317313294,  -0.026975796659787055,
      0.040760833940846085,   -0.06192213327548831,    0.09498872445289039,   -0.14840492305388092,
      0.24054248424078697,    -0.4236274212814606,     0.9510558760318328};
  // 2^-51, of a part that is at most 2^-11 of the sum.
  static constexpr std::array kDigammaFar = {-0.018818831063563666, 0.007550959646706428, -0.004166539939976211,
                                             0.003968253673479102,  -0.00833333333308159, 0.0833333333333333};
  static constexpr double kRoot = 1.4616321449683622, kRootLow = 9.549995429965697e-17;
};
template <class V> using GammaOf = GammaConstants<ElementOfValue<V>>;

/// log |Gamma(x)|: from 8 on by Stirling's series (DLMF 5.11.1); below, Gamma(x + 1) = x Gamma(x) leads to [3/2, 5/2);
/// of negative numbers by reflection (DLMF 5.5.3).
template <class V> V lgamma(V x) {
  using C = GammaOf<V>;
  const V one = constant<V>(1), half = constant<V>(0.5);
  const auto reflected = x < -half;
  const V a = select(reflected, -x, x);
  V near = a, product = one;
  for (int step = 0; step < 6; ++step) {
    const auto above = near >= constant<V>(2.5);
    near = select(above, near - one, near);
    product = select(above, product * near, product);
  }
  const auto low = near < constant<V>(1.5), lowest = near < half;
  const V z = near - select(lowest, constant<V>(0), select(low, one, constant<V>(2)));
  const V factor = select(lowest, near * (near + one), select(low, near, product));
  const auto far = a >= constant<V>(8);
  const V logarithm = log(select(far, a, abs(factor)));
  const V of_near = fma(z, polynomial(z, C::kLogGammaNear), select(low, -logarithm, logarithm));
  const V inverse = one / a;
  const V rest = fma(inverse, polynomial(inverse * inverse, C::kLogGammaFar), constant<V>(0.41893853320467274));
  const V value = select(far, fma(a - half, logarithm - one, rest), of_near);
  const V sine = sine_of_quadrant(reduce_half_turns(a), UnsignedBits<V>(typename FormatOf<V>::Unsigned{0}));
  const V mirrored = log(constant<V>(3.14159265358979324) / (a * abs(sine))) - value;
  return select(reflected, select(a == infinity<V>(), a, mirrored), value);
}

/// The derivative of log(Gamma(x)): from 10 on by its asymptotic series (DLMF 5.11.2); below, digamma(x + 1) =
/// digamma(x) + 1 / x leads to [1, 2), where a polynomial times x - root keeps the relative accuracy; of negative
/// numbers by reflection (DLMF 5.5.4).
template <class V> V digamma(V x) {
  using C = GammaOf<V>;
  const V one = constant<V>(1), zero = constant<V>(0);
  const auto reflected = x < zero;
  const V a = select(reflected, one - x, x);
  V near = a, top = zero, bottom = one;  // the sum of 1 / (x - k) as a fraction
  for (int step = 0; step < 8; ++step) {
    const auto above = near >= constant<V>(2);
    near = select(above, near - one, near);
    top = select(above, fma(top, near, bottom), top);
    bottom = select(above, bottom * near, bottom);
  }
  const auto low = near < one;
  const V fraction = select(low, -one, top) / select(low, near, bottom);
  near = select(low, near + one, near);
  const V distance = (near - V(C::kRoot)) - V(C::kRootLow);
  const V of_near = fma(distance, polynomial(near - constant<V>(1.5), C::kDigammaNear), fraction);
  const V inverse = one / a, square = inverse * inverse;
  const V rest = fma(inverse, constant<V>(-0.5), -square * polynomial(square, C::kDigammaFar));
  const V value = select(a >= constant<V>(10), log(a) + rest, of_near);
  const SineAndCosine<V> turned = of_angle(reduce_half_turns(abs(x)));
  const V mirrored = fma(turned.cosine / turned.sine, constant<V>(3.14159265358979324), value);
  return select(reflected, select(x == floor(x), quiet_nan<V>(), mirrored), value);
}

}  // namespace fermata::math
