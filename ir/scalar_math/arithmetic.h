// Exact and nearly exact arithmetic that takes more than one primitive: signs, extremes, divisions with remainder,
// hypot.
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

/// -1, 0 or 1; 0 for either zero, NaN for NaN.
template <class V> V sign(V x) {
  using T = ElementOfValue<V>;
  const V zero(T(0)), one(T(1));
  if constexpr (std::is_unsigned_v<T>)
    return select(x > zero, one, x);
  else if constexpr (is_float_value<V>)
    return select(x > zero, one, select(x < zero, V(T(-1)), select(x == zero, zero, x)));
  else
    return select(x > zero, one, select(x < zero, V(T(-1)), x));
}

/// NaN if either is NaN. If `b` is the same for all elements, as in clip, its test is outside of the loop; where `a` is
/// NaN, max gives it.
template <class V> V maximum(V a, V b) {
  if constexpr (is_float_value<V>)
    return select(b != b, b, max(b, a));
  else if constexpr (std::is_same_v<ElementOfValue<V>, bool>)
    return a | b;
  else
    return max(a, b);
}

template <class V> V minimum(V a, V b) {
  if constexpr (is_float_value<V>)
    return select(b != b, b, min(b, a));
  else if constexpr (std::is_same_v<ElementOfValue<V>, bool>)
    return a & b;
  else
    return min(a, b);
}

/// The quotient rounded towards minus infinity.
template <class V> V floor_divide(V a, V b) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>) {
    // The rounded quotient may be an integer above the true one; the remainder, whose sign fma gives, is then on the
    // other side of 0. Quotients with more bits than a float are rounded, as are those that are not finite.
    constexpr T kEnd = static_cast<T>(std::uint64_t{2} << FormatOf<V>::kMantissaBits);
    const V zero(T(0)), quotient = floor(a / b);
    const V rest = select(abs(b) == infinity<V>(), a, fma(-quotient, b, a));
    const auto above = (rest != zero) & ((rest < zero) != (b < zero)) & (abs(quotient) <= V(kEnd));
    return select(above, quotient - V(T(1)), quotient);
  } else if constexpr (std::is_unsigned_v<T>) {
    return a / b;
  } else {
    const V quotient = a / b, rest = a - quotient * b;
    const auto step = (rest != V(T(0))) & ((rest ^ b) < V(T(0))) & (b != V(T(0)));
    return select(step, quotient - V(T(1)), quotient);
  }
}

/// The remainder with the sign of b. If a is small compared to b and has the opposite sign, a + b is rounded, to b at
/// most.
template <class V> V remainder(V a, V b) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>) {
    const V zero(T(0)), rest = a % b;
    const V value = select((rest != zero) & ((rest < zero) != (b < zero)), rest + b, rest);
    return select(value == zero, with_sign_of(zero, b), value);
  } else {
    const V rest = select(b == V(T(0)), V(T(0)), a % b);
    if constexpr (std::is_unsigned_v<T>)
      return rest;
    else
      return select((rest != V(T(0))) & ((rest ^ b) < V(T(0))), rest + b, rest);
  }
}

/// Rounding to integers; integers are unchanged.
template <class V> V floor_of(V x) {
  if constexpr (is_float_value<V>)
    return floor(x);
  else
    return x;
}
template <class V> V ceil_of(V x) {
  if constexpr (is_float_value<V>)
    return ceil(x);
  else
    return x;
}
template <class V> V trunc_of(V x) {
  if constexpr (is_float_value<V>)
    return trunc(x);
  else
    return x;
}
template <class V> V round_of(V x) {
  if constexpr (is_float_value<V>)
    return rint(x);
  else
    return x;
}

template <class V> V copysign(V magnitude, V x) { return with_sign_of(abs(magnitude), x); }
template <class V> auto signbit(V x) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>) {
    using S = typename FormatOf<V>::Signed;
    return bitcast<S>(x) < SignedBits<V>(S{0});
  } else {
    return x < V(T(0));
  }
}

/// The remainder of truncated division, with the sign of a. Exact.
template <class V> V fmod(V a, V b) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>)
    return a % b;
  else
    return select(b == V(T(0)), V(T(0)), a % b);
}

/// sqrt(a^2 + b^2) without intermediate overflow or underflow; infinite if either is, even if the other is NaN.
template <class V> V hypot(V a, V b) {
  const V x = abs(a), y = abs(b);
  const V large = maximum(x, y), small = minimum(x, y), ratio = small / large;
  const V value = select(large == constant<V>(0), large, large * sqrt(fma(ratio, ratio, constant<V>(1))));
  return select((x == infinity<V>()) | (y == infinity<V>()), infinity<V>(), value);
}

}  // namespace fermata::math
