// pow: 2^(y log2 |x|) with the logarithm as a pair of floats, then the special cases of IEEE 754-2019, section 9.2.1;
// of integers by squaring. cbrt and logaddexp.
#pragma once

#include "ir/scalar_math/arithmetic.h"
#include "ir/scalar_math/exponential.h"
#include "ir/scalar_math/logarithm.h"

namespace fermata::math {

// log2((1 + s) / (1 - s)) = C (s + s^3 / 3) + s^5 P(s^2), C = 2 / ln 2 in two parts, s = f / (2 + f).
template <class T> struct PowerConstants;
template <> struct PowerConstants<float> {
  static constexpr float kC = 2.88539004f, kCLow = 3.85192598e-8f;
  static constexpr float kCThird = 0.961796701f, kCThirdLow = -7.02846165e-9f;
  static constexpr std::array kTail = {0.337124348f, 0.411945701f, 0.577078581f};  // 2^-18.4
  static constexpr float kExponentLimit = 160.0f;                                  // 2^it is 0 or infinity
};
template <> struct PowerConstants<double> {
  static constexpr double kC = 2.8853900817779268, kCLow = 4.0710547481862066e-17;
  static constexpr double kCThird = 0.96179669392597555, kCThirdLow = 5.0577616648125907e-17;
  static constexpr std::array kTail = {0.16913926915295269, 0.16888435233675644, 0.19238060218956304,
                                       0.22195278789636552, 0.26230819147486617, 0.32059889796712365,
                                       0.41219858311114393, 0.57707801635558531};  // 2^-51.8
  static constexpr double kExponentLimit = 1100.0;
};
template <class V> using PowerOf = PowerConstants<ElementOfValue<V>>;

/// f / (2 + f) as a pair.
template <class V> Pair<V> halved_ratio(V f) {
  const Pair<V> divisor = fast_two_sum(constant<V>(2), f);
  const V inverse = constant<V>(1) / divisor.high;
  const V s = f * inverse;
  return {s, (fma(-s, divisor.high, f) - s * divisor.low) * inverse};
}

/// log2 of finite x above 0, to about 2^-(2 mantissa_bits - 10).
template <class V> Pair<V> log2_pair(V x) {
  using C = PowerOf<V>;
  const SplitFloat<V> split = split_float(x);
  const Pair<V> s = halved_ratio(split.fraction);
  const Pair<V> square = multiply(s, s);
  Pair<V> inner = fast_two_sum(V(C::kCThird), square.high * polynomial(square.high, C::kTail));
  inner.low = inner.low + V(C::kCThirdLow);
  const Pair<V> cubic = multiply(square, inner);
  Pair<V> slope = fast_two_sum(V(C::kC), cubic.high);
  slope.low = slope.low + (cubic.low + V(C::kCLow));
  const Pair<V> fraction = multiply(s, slope);
  const Pair<V> sum = fast_two_sum(split.exponent, fraction.high);
  return fast_two_sum(sum.high, sum.low + fraction.low);
}

/// |x|^y for any |x| and y; if the logarithm is infinite or the power is out of range, low parts are dropped.
template <class V> V power_of_magnitude(V magnitude, V y) {
  using C = PowerOf<V>;
  const V zero = constant<V>(0);
  const Pair<V> log = log2_pair(magnitude);
  const V high = select(magnitude < infinity<V>(), select(magnitude == zero, -infinity<V>(), log.high), magnitude);
  const V limit = constant<V>(is_double_value<V> ? 0x1p64 : 0x1p32);  // of y: beyond it only |x| = 1 has a power
  const V bounded = max(-limit, min(limit, y));
  const V product = high * bounded;
  const V low = fma(log.low, bounded, fma(high, bounded, -product));
  return exp2_of_sum(product, select(abs(product) < V(C::kExponentLimit), low, zero));
}

/// By squaring, wrapping; negative exponents give 1 / x^-y truncated: 0, or a power of -1 or 1.
template <class V> V integer_pow(V x, V y) {
  using T = ElementOfValue<V>;
  const V zero(T(0)), one(T(1));
  constexpr int kBits = static_cast<int>(sizeof(T) * 8) - (std::is_signed_v<T> ? 1 : 0);
  V result = one, base = x;
  for (int bit = 0; bit < kBits; ++bit) {
    const V shifted = y >> V(static_cast<T>(bit));
    result = select((shifted & one) != zero, result * base, result);
    if (bit + 1 < kBits) base = base * base;
  }
  if constexpr (std::is_signed_v<T>) {
    const V minus(T(-1)), odd = select((y & one) != zero, minus, one);
    result = select(y < zero, select(x == one, one, select(x == minus, odd, zero)), result);
  }
  return result;
}

template <class V> V floating_pow(V x, V y) {
  using B = UnsignedBits<V>;
  using U = typename FormatOf<V>::Unsigned;
  const V zero = constant<V>(0), one = constant<V>(1);
  const V magnitude = abs(x);
  const V result = power_of_magnitude(magnitude, y);
  const V half = y * constant<V>(0.5);
  const auto fractional = rint(y) != y;
  const auto odd = (!fractional) & (rint(half) != half);
  const V negated = from_bits<V>(bits_of(result) ^ select(odd, sign_bit_of(x), B(U{0})));
  const V signed_result = select(fractional & (x < zero) & (magnitude < infinity<V>()), quiet_nan<V>(), negated);
  return select((x == one) | (y == zero), one, signed_result);
}

template <class V> V pow(V x, V y) {
  if constexpr (is_float_value<V>)
    return floating_pow(x, y);
  else
    return integer_pow(x, y);
}

/// The real cube root: 2^(log2 |x| / 3), and one step of Newton's method with the residual as a pair. The cube of the
/// rounding error of y must neither be subnormal nor overflow, so such x are scaled by a power of 8.
template <class V> V cbrt(V x) {
  constexpr bool kDouble = is_double_value<V>;
  const V t = abs(x);
  const auto tiny = t < constant<V>(kDouble ? 0x1p-960 : 0x1p-100);
  const auto huge = t > constant<V>(kDouble ? 0x1p960 : 0x1p100);
  const V one = constant<V>(1), up = constant<V>(kDouble ? 0x1p240 : 0x1p60),
          down = constant<V>(kDouble ? 0x1p-240 : 0x1p-60);
  const V scaled = t * select(tiny, up, select(huge, down, one));
  const V y = exp2(log2(scaled) * constant<V>(1.0 / 3));
  const Pair<V> square = two_product(y, y);
  const Pair<V> cube = multiply(square, Pair<V>{y, constant<V>(0)});
  const V residual = (cube.high - scaled) + cube.low;
  const V root = y - residual / (square.high * constant<V>(3));
  const V larger = constant<V>(kDouble ? 0x1p80 : 0x1p20), smaller = constant<V>(kDouble ? 0x1p-80 : 0x1p-20);
  const V whole = root * select(tiny, smaller, select(huge, larger, one));
  return select((t == constant<V>(0)) | (!(t < infinity<V>())), x, with_sign_of(whole, x));
}

/// log(e^a + e^b) without overflow.
template <class V> V logaddexp(V a, V b) {
  const V large = maximum(a, b), gap = abs(a - b);
  return select(a == b, a + constant<V>(0.6931471805599453), large + log1p(exp(-gap)));
}

}  // namespace fermata::math
