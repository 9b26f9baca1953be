// log, log2, log10, log1p.
//
// x = 2^e (1 + f) with f from -1/3 to 1/3 (f32) or sqrt(1/2) - 1 to sqrt(2) - 1 (f64).
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

template <class T> struct LogarithmConstants;
template <> struct LogarithmConstants<float> {
  static constexpr std::uint32_t kCut = 0x3f2aaaab;  // 2/3: the least 1 + f
  static constexpr float kLn2High = 0.693147182f, kLn2Low = -1.90465421e-9f;
  static constexpr float kLog2E = 1.44269502f, kLog10E = 0.434294492f, kLog10Of2 = 0.30103001f;
  static constexpr float kSubnormalScale = 0x1p24f, kSubnormalExponent = 24;
  // log(1 + f) = f - f^2 / 2 + f^3 P(f).
  static constexpr std::array kLog1p = {-0.130310059f, 0.140869141f, -0.121483512f, 0.139814854f,
                                        -0.166846126f, 0.200120345f, -0.249996200f, 0.333331972f};
};
template <> struct LogarithmConstants<double> {
  static constexpr std::uint64_t kCut = 0x3fe6a09e667f3bcd;  // sqrt(1/2)
  static constexpr double kLn2High = 0.69314718055994529, kLn2Low = 2.3190468138462996e-17;
  static constexpr double kLog2E = 1.4426950408889634, kLog10E = 0.43429448190325182, kLog10Of2 = 0.3010299956639812;
  static constexpr double kSubnormalScale = 0x1p54, kSubnormalExponent = 54;
  // 2 atanh(s) = 2 s + s^3 P(s^2) for s = f / (2 + f): 2^-58.9.
  static constexpr std::array kAtanh = {0.1479703223174422,  0.15313951658688829, 0.18183567812486895,
                                        0.22222198513729918, 0.28571428742888982, 0.39999999999412794,
                                        0.66666666666667351};
};
template <class V> using LogarithmOf = LogarithmConstants<ElementOfValue<V>>;

/// The exponent field that takes x to [cut, 2 cut), in place.
template <class V> UnsignedBits<V> exponent_above_cut(UnsignedBits<V> bits) {
  using U = typename FormatOf<V>::Unsigned;
  return (bits - UnsignedBits<V>(LogarithmOf<V>::kCut)) & UnsignedBits<V>(~U{0} << FormatOf<V>::kMantissaBits);
}
/// An exponent in place, as a float: the conversion of the whole word is exact.
template <class V> V exponent_as_float(UnsignedBits<V> in_place) {
  using F = FormatOf<V>;
  return convert<ElementOfValue<V>>(bitcast<typename F::Signed>(in_place)) *
         constant<V>(1.0 / static_cast<double>(std::uint64_t{1} << F::kMantissaBits));
}

template <class V> struct SplitFloat { V exponent, fraction; };  // 2^exponent (1 + fraction)

/// For finite x above 0, subnormals included.
template <class V> SplitFloat<V> split_float(V x) {
  using C = LogarithmOf<V>;
  const auto subnormal = x < V(std::numeric_limits<ElementOfValue<V>>::min());
  const UnsignedBits<V> bits = bits_of(select(subnormal, x * V(C::kSubnormalScale), x));
  const UnsignedBits<V> in_place = exponent_above_cut<V>(bits);
  const V exponent = exponent_as_float<V>(in_place) - select(subnormal, V(C::kSubnormalExponent), constant<V>(0));
  return {exponent, from_bits<V>(bits - in_place) - constant<V>(1)};
}

/// log(1 + f) - f for f in the range of a split float.
template <class V> V log1p_minus_argument(V f) {
  using C = LogarithmOf<V>;
  const V square = f * f;
  if constexpr (is_double_value<V>) {
    // log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R)), s = f / (2 + f): as in fdlibm's e_log.c.
    const V half = square * constant<V>(0.5), s = f / (constant<V>(2) + f), z = s * s;
    return fma(s, fma(z, polynomial(z, C::kAtanh), half), -half);
  } else {
    return square * fma(f, polynomial(f, C::kLog1p), constant<V>(-0.5));
  }
}

/// `value` for finite x above 0; the limits of a logarithm elsewhere.
template <class V> V logarithm_limits(V x, V value) {
  const V below = select(x == constant<V>(0), -infinity<V>(), quiet_nan<V>());
  return select(x > constant<V>(0), select(x < infinity<V>(), value, x), select(x == x, below, x));
}

/// Of finite x above 0.
template <class V> V log_of_positive(V x) {
  using C = LogarithmOf<V>;
  const SplitFloat<V> s = split_float(x);
  const V low = fma(s.exponent, V(C::kLn2Low), log1p_minus_argument(s.fraction));
  return fma(s.exponent, V(C::kLn2High), s.fraction + low);
}
template <class V> V log(V x) { return logarithm_limits(x, log_of_positive(x)); }

template <class V> V log2(V x) {
  using C = LogarithmOf<V>;
  const SplitFloat<V> s = split_float(x);
  // log2(1 + f) = f + (f (log2(e) - 1) + (log(1 + f) - f) log2(e)): the large part of the product is not rounded.
  const V rest = fma(s.fraction, V(C::kLog2E - 1), log1p_minus_argument(s.fraction) * V(C::kLog2E));
  return logarithm_limits(x, s.exponent + (s.fraction + rest));
}

template <class V> V log10(V x) {
  using C = LogarithmOf<V>;
  const SplitFloat<V> s = split_float(x);
  const V natural = s.fraction + log1p_minus_argument(s.fraction);
  return logarithm_limits(x, fma(s.exponent, V(C::kLog10Of2), natural * V(C::kLog10E)));
}

/// 1 + x = 2^e (1 + f) where f = 2^-e x + (2^-e - 1): both terms are exact, so nothing of a small x is lost.
template <class V> V log1p(V x) {
  using C = LogarithmOf<V>;
  const UnsignedBits<V> in_place = exponent_above_cut<V>(bits_of(x + constant<V>(1)));
  const V four_times = from_bits<V>(bits_of(constant<V>(4)) - in_place);
  const V fraction = from_bits<V>(bits_of(x) - in_place) + fma(four_times, constant<V>(0.25), constant<V>(-1));
  const V exponent = exponent_as_float<V>(in_place);
  const V low = fma(exponent, V(C::kLn2Low), log1p_minus_argument(fraction));
  const V value = fma(exponent, V(C::kLn2High), fraction + low);
  const V inside =
      select(x < infinity<V>(), select(abs(x) < V(std::numeric_limits<ElementOfValue<V>>::min()), x, value), x);
  const V below = select(x == constant<V>(-1), -infinity<V>(), quiet_nan<V>());
  return select(x > constant<V>(-1), inside, select(x == x, below, x));
}

}  // namespace fermata::math
