// sin, cos and tan of any argument.
//
// |x| = q pi/2 + r with |r| <= pi/4. Small arguments subtract q times pi/2 in three parts (Cody and Waite 1980). Large
// ones (Payne and Hanek 1983) multiply the mantissa by the 3 words of 2/pi whose product with it lies around the
// binary point; whole turns above drop out by wrapping. The second way is computed only if an element needs it.
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

template <class T> struct TrigonometricConstants;
template <> struct TrigonometricConstants<float> {
  static constexpr float kTwoOverPi = 0.636619772f;
  static constexpr float kPiOver2[3] = {1.57079637f, -4.37113883e-8f, -1.71512451e-15f};
  static constexpr float kLarge = 0x1p17f;
  // 2/pi after kLeadingZeros zeros, in words from the top.
  static constexpr int kLeadingZeros = 8, kSteps = 2;
  static constexpr std::array<std::uint32_t, 7> kTwoOverPiWords = {0x00a2f983, 0x6e4e4415, 0x29fc2757, 0xd1f534dd,
                                                                   0xc0db6295, 0x993c4390, 0x41fe5163};
  // sin r = r + r^3 P(r^2), cos r = 1 - r^2 / 2 + r^4 Q(r^2): 2^-27.8, 2^-32.9.
  static constexpr std::array kSin = {-0.000195078843f, 0.00833210628f, -0.166666538f};
  static constexpr std::array kCos = {2.44314251e-05f, -0.00138873048f, 0.0416666456f};
};
template <> struct TrigonometricConstants<double> {
  static constexpr double kTwoOverPi = 0.63661977236758138;
  static constexpr double kPiOver2[3] = {1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33};
  static constexpr double kLarge = 0x1p30;
  static constexpr int kLeadingZeros = 29, kSteps = 4;
  static constexpr std::array<std::uint64_t, 19> kTwoOverPiWords = {
      0x0000000517cc1b72, 0x7220a94fe13abe8f, 0xa9a6ee06db14acc9, 0xe21c820ff28b1d5e, 0xf5de2b0db92371d2,
      0x126e970032497750, 0x4e8c90e7f0ef58e5, 0x894d39f74411afa9, 0x75da24274ce38135, 0xa2fbf209cc8eb1cc,
      0x1a99cfa4e422fc5d, 0xefc941d8ffc4bffe, 0xf02cc07f79788c5a, 0xd05368fb69b3f679, 0x3e584dba7a31fb34,
      0xf2ff516ba93dd63f, 0x5f2f8bd9e839cfbc, 0x529497535fdafd88, 0xfc6ae842b0198237};
  // 2^-56.3, 2^-62.2.
  static constexpr std::array kSin = {1.589460393628123e-10,   -2.5050720393114771e-08, 2.7557313451283016e-06,
                                      -0.00019841269829113859, 0.008333333333321544,    -0.1666666666666663};
  static constexpr std::array kCos = {-1.1357406802369618e-11, 2.0875679416815874e-09, -2.7557314024742402e-07,
                                      2.4801587288327977e-05,  -0.0013888888888872236, 0.041666666666666588};
};
template <class V> using TrigonometricOf = TrigonometricConstants<ElementOfValue<V>>;

/// r and the quadrant, of which only the two low bits are significant.
template <class V> struct QuadrantAngle {
  V r;
  UnsignedBits<V> quadrant;
};

template <class V> QuadrantAngle<V> reduce_small_angle(V x) {
  using C = TrigonometricOf<V>;
  const V round = V(kRoundToInteger<ElementOfValue<V>>);
  const V shifted = fma(x, V(C::kTwoOverPi), round);
  const V n = shifted - round;
  V r = fma(n, V(-C::kPiOver2[0]), x);
  r = fma(n, V(-C::kPiOver2[1]), r);
  r = fma(n, V(-C::kPiOver2[2]), r);
  return {r, bits_of(shifted)};
}

/// The three words of 2/pi that start `start` bits into the table: a barrel shifter over words, then within them.
template <class U> std::array<U, 3> two_over_pi_window(U start, const auto& table, int steps) {
  using T = typename U::Element;
  constexpr int kWordBits = sizeof(T) * 8;
  std::array<U, std::tuple_size_v<std::remove_cvref_t<decltype(table)>>> words = [&]<std::size_t... I>(
      std::index_sequence<I...>) {
    return std::array<U, sizeof...(I)>{U(table[I])...};
  }
  (std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(table)>>>{});
  for (int step = steps - 1; step >= 0; --step) {
    const std::size_t jump = std::size_t{1} << step, keep = 4 + jump - 1;
    const auto taken = (start & U(static_cast<T>(jump * kWordBits))) != U(T{0});
    for (std::size_t i = 0; i < keep; ++i) words[i] = select(taken, words[i + jump], words[i]);
  }
  const U left = start & U(static_cast<T>(kWordBits - 1)), right = U(static_cast<T>(kWordBits)) - left;
  return {(words[0] << left) | (words[1] >> right), (words[1] << left) | (words[2] >> right),
          (words[2] << left) | (words[3] >> right)};
}

/// For finite x >= 2^(mantissa_bits + 2 - kLeadingZeros); NaN for infinity and NaN.
template <class V> QuadrantAngle<V> reduce_large_angle(V x) {
  using C = TrigonometricOf<V>;
  using T = ElementOfValue<V>;
  using F = FormatOf<V>;
  using U = typename F::Unsigned;
  using B = UnsignedBits<V>;
  constexpr int kWordBits = sizeof(U) * 8;
  const B bits = bits_of(x);
  const B mantissa = (bits & B((U{1} << F::kMantissaBits) - 1)) | B(U{1} << F::kMantissaBits);
  const B start =
      (bits >> B(U{F::kMantissaBits})) - B(static_cast<U>(F::kBias + F::kMantissaBits + 2 - C::kLeadingZeros));
  const auto w = two_over_pi_window(start, C::kTwoOverPiWords, C::kSteps);
  // mantissa * window: the top two bits of `high` are the quadrant, what follows the fraction of pi/2.
  const B high = mantissa * w[0] + mul_high(mantissa, w[1]), middle = mantissa * w[1];
  const B quadrant = (high + B(U{1} << (kWordBits - 3))) >> B(U{kWordBits - 2});
  const B fraction = high - (quadrant << B(U{kWordBits - 2}));
  constexpr T kWord = static_cast<T>(std::uint64_t{1} << (kWordBits - 1)) * 2;
  // As floats: the fraction to the nearest multiple of what is exact, and the signed rest, so that nothing cancels.
  const auto as_float = [](B u) { return convert<T>(bitcast<typename F::Signed>(u)); };
  const auto half_as_float = [&](B u) { return as_float(u >> B(U{1})); };  // of unsigned words, whose last bit is noise
  constexpr U kCoarse = U{1} << (kWordBits - F::kMantissaBits);
  const B coarse = (fraction + B(kCoarse / 2)) & B(~(kCoarse - 1));
  const V lowest = fma(as_float(mantissa), half_as_float(w[2]) * V(1 / kWord), half_as_float(middle));
  const V low = fma(lowest, V(2 / kWord), as_float(fraction - coarse)), head = as_float(coarse);
  const T unit = 4 / kWord;
  const V r = fma(head, V(C::kPiOver2[0] * unit), fma(head, V(C::kPiOver2[1] * unit), low * V(C::kPiOver2[0] * unit)));
  return {r + (x - x), quadrant};
}

template <class V> V sine_of_quadrant(QuadrantAngle<V> angle, UnsignedBits<V> sign) {
  using C = TrigonometricOf<V>;
  using U = typename FormatOf<V>::Unsigned;
  using B = UnsignedBits<V>;
  const V r = angle.r, z = r * r;
  const V sine = fma(z * r, polynomial(z, C::kSin), r);
  const V cosine = fma(z * z, polynomial(z, C::kCos), fma(z, constant<V>(-0.5), constant<V>(1)));
  const auto odd = (angle.quadrant & B(U{1})) != B(U{0});
  const B flip = (angle.quadrant & B(U{2})) << B(static_cast<U>(sizeof(U) * 8 - 2));
  return from_bits<V>(bits_of(select(odd, cosine, sine)) ^ (flip ^ sign));
}

template <class V> QuadrantAngle<V> reduce_angle(V magnitude) {
  const QuadrantAngle<V> small = reduce_small_angle(magnitude);
  const auto is_small = magnitude < V(TrigonometricOf<V>::kLarge);
  if (are_all(is_small)) return small;
  const QuadrantAngle<V> large = reduce_large_angle(magnitude);
  return {select_usual(is_small, small.r, large.r), select_usual(is_small, small.quadrant, large.quadrant)};
}

template <class V> V sin(V x) { return sine_of_quadrant(reduce_angle(abs(x)), sign_bit_of(x)); }

template <class V> V cos(V x) {
  using U = typename FormatOf<V>::Unsigned;
  QuadrantAngle<V> angle = reduce_angle(abs(x));
  angle.quadrant = angle.quadrant + UnsignedBits<V>(U{1});
  return sine_of_quadrant(angle, UnsignedBits<V>(U{0}));
}

/// sin r / cos r, or -cos r / sin r in odd quadrants.
template <class V> V tan(V x) {
  using C = TrigonometricOf<V>;
  using U = typename FormatOf<V>::Unsigned;
  using B = UnsignedBits<V>;
  const QuadrantAngle<V> angle = reduce_angle(abs(x));
  const V r = angle.r, z = r * r;
  const V sine = fma(z * r, polynomial(z, C::kSin), r);
  const V cosine = fma(z * z, polynomial(z, C::kCos), fma(z, constant<V>(-0.5), constant<V>(1)));
  const auto odd = (angle.quadrant & B(U{1})) != B(U{0});
  const V tangent = select(odd, -cosine, sine) / select(odd, sine, cosine);
  return from_bits<V>(bits_of(tangent) ^ sign_bit_of(x));
}

/// cos(2 pi u) for u in [0, 1): the quadrant and the fraction are exact.
template <class V> V cos_of_turns(V u) {
  using C = TrigonometricOf<V>;
  using U = typename FormatOf<V>::Unsigned;
  const V round = V(kRoundToInteger<ElementOfValue<V>>);
  const V shifted = fma(u, constant<V>(4), round);
  const V r = fma(u, constant<V>(4), round - shifted) * V(C::kPiOver2[0]);
  return sine_of_quadrant<V>({r, bits_of(shifted) + UnsignedBits<V>(U{1})}, UnsignedBits<V>(U{0}));
}

}  // namespace fermata::math
