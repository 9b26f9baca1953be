// Float formats and basic building blocks of the elementary functions.
//
// Everything in ir/scalar_math is pure dataflow over the value interface of ir/scalar_program.h: no branch depends on a
// value, only on the element type, but one around what is rare. Integer operations on the bits of floats replace scalbn
// and copysign.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace fermata::math {

template <class T> struct FloatFormat;
template <> struct FloatFormat<float> {
  using Signed = std::int32_t;
  using Unsigned = std::uint32_t;
  static constexpr int kMantissaBits = 23, kBias = 127;
};
template <> struct FloatFormat<double> {
  using Signed = std::int64_t;
  using Unsigned = std::uint64_t;
  static constexpr int kMantissaBits = 52, kBias = 1023;
};

template <class V> using ElementOfValue = typename V::Element;
template <class V> using FormatOf = FloatFormat<ElementOfValue<V>>;
template <class V> using SignedBits = typename V::template Rebind<typename FormatOf<V>::Signed>;
template <class V> using UnsignedBits = typename V::template Rebind<typename FormatOf<V>::Unsigned>;

template <class V> inline constexpr bool is_float_value = std::is_floating_point_v<ElementOfValue<V>>;
template <class V> inline constexpr bool is_double_value = std::is_same_v<ElementOfValue<V>, double>;

/// select(usual, a, rare) where hardly any element takes the rare value (kRare in ir/scalar_program.h).
template <class M, class V> V select_usual(M usual, V a, V rare) { return select(usual, a, rare); }
/// select(usual, quick, general) where the general value is right for all elements, and hardly any element needs it.
template <class M, class V> V select_quick(M usual, V quick, V general) { return select(usual, quick, general); }
/// Whether all elements are known to be usual: what is rare need not be computed.
template <class M> bool are_all(M usual) {
  if constexpr (requires { any(!usual); })
    return !any(!usual);
  else
    return false;
}

/// A constant, rounded to the element type.
template <class V> V constant(double value) { return V(static_cast<ElementOfValue<V>>(value)); }
template <class V> V infinity() { return V(std::numeric_limits<ElementOfValue<V>>::infinity()); }
template <class V> V quiet_nan() { return V(std::numeric_limits<ElementOfValue<V>>::quiet_NaN()); }

template <class V> UnsignedBits<V> bits_of(V x) { return bitcast<typename FormatOf<V>::Unsigned>(x); }
template <class V> V from_bits(UnsignedBits<V> bits) { return bitcast<ElementOfValue<V>>(bits); }
template <class V> UnsignedBits<V> sign_bit_of(V x) {
  using U = typename FormatOf<V>::Unsigned;
  return bits_of(x) & UnsignedBits<V>(U{1} << (sizeof(U) * 8 - 1));
}
/// |magnitude| with the sign of `x`; `magnitude` must not be negative.
template <class V> V with_sign_of(V magnitude, V x) { return from_bits<V>(bits_of(magnitude) | sign_bit_of(x)); }

/// c[0] x^(N-1) + ... + c[N-1].
template <class V, std::size_t N> V polynomial(V x, const std::array<ElementOfValue<V>, N>& c) {
  V sum(c[0]);
  for (std::size_t i = 1; i < N; ++i) sum = fma(sum, x, V(c[i]));
  return sum;
}

/// Adding 1.5 * 2^mantissa_bits rounds a small float to an integer, which then sits in the low bits of the sum.
template <class T>
inline constexpr T kRoundToInteger = static_cast<T>(std::uint64_t{3} << (FloatFormat<T>::kMantissaBits - 1));
/// The same with the exponent bias added, so that the low bits shifted into the exponent field are a power of two.
template <class T> inline constexpr T kRoundToExponent = kRoundToInteger<T> + static_cast<T>(FloatFormat<T>::kBias);

/// 2^n, given n + kRoundToExponent; n from 1 - bias to bias.
template <class V> V power_of_two(UnsignedBits<V> shifted) {
  return from_bits<V>(shifted << UnsignedBits<V>(FormatOf<V>::kMantissaBits));
}

/// A sum of two floats, the second at most half an ulp of the first.
template <class V> struct Pair { V high, low; };

/// A polynomial with the rounding error of its last step, the constant term being the largest.
template <class V, std::size_t N> Pair<V> polynomial_pair(V x, const std::array<ElementOfValue<V>, N>& c) {
  V sum(c[0]);
  for (std::size_t i = 1; i + 1 < N; ++i) sum = fma(sum, x, V(c[i]));
  const V high = fma(sum, x, V(c[N - 1]));
  return {high, fma(sum, x, V(c[N - 1]) - high)};
}
/// Exact sum where |a| >= |b| or a is 0 (Dekker 1971).
template <class V> Pair<V> fast_two_sum(V a, V b) {
  const V sum = a + b;
  return {sum, b - (sum - a)};
}
/// Exact product.
template <class V> Pair<V> two_product(V a, V b) {
  const V product = a * b;
  return {product, fma(a, b, -product)};
}
template <class V> Pair<V> multiply(Pair<V> a, Pair<V> b) {
  const V product = a.high * b.high;
  const V error = fma(a.high, b.high, -product);
  return {product, fma(a.low, b.high, fma(a.high, b.low, error))};
}

}  // namespace fermata::math
