// Exact and nearly exact arithmetic of the op table that is more than one primitive: signs, extremes, divisions with
// remainder, hypot.
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

/// -1, 0 or 1; zeros and NaN as they are.
template <class V> V sign(V x) {
  using T = ElementOfValue<V>;
  if constexpr (std::is_unsigned_v<T>) {
    return select(x > V(T(0)), V(T(1)), x);
  } else {
    return select(x > V(T(0)), V(T(1)), select(x < V(T(0)), V(T(-1)), x));
  }
}

template <class V> V maximum(V a, V b) {
  if constexpr (is_float_value<V>)
    return select(a != a, a, max(a, b));
  else if constexpr (std::is_same_v<ElementOfValue<V>, bool>)
    return a | b;
  else
    return max(a, b);
}

template <class V> V minimum(V a, V b) {
  if constexpr (is_float_value<V>)
    return select(a != a, a, min(a, b));
  else if constexpr (std::is_same_v<ElementOfValue<V>, bool>)
    return a & b;
  else
    return min(a, b);
}

template <class V> struct FlooredDivision { V quotient, remainder; };

/// The floored quotient of floats and what is left. The quotient a / b is rounded, so floor may land one off; the sign
/// and the size of the remainder, which fma gives exactly for quotients below 2^mantissa_bits, show it.
template <class V> FlooredDivision<V> floored_division(V a, V b) {
  const V quotient = floor(a / b);
  const V rest = select(abs(b) == infinity<V>(), a, fma(-quotient, b, a));
  const auto zero = rest == constant<V>(0);
  const auto below = (!zero) & ((rest < constant<V>(0)) != (b < constant<V>(0)));
  const auto above = (!below) & (abs(rest) >= abs(b));
  const V one = constant<V>(1);
  const V remainder = select(below, rest + b, select(above, rest - b, rest));
  return {select(below, quotient - one, select(above, quotient + one, quotient)),
          select(remainder == constant<V>(0), with_sign_of(constant<V>(0), b), remainder)};
}

template <class V> V floor_divide(V a, V b) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>) {
    // Where b is 0 or something is not finite the plain quotient says it: floor(a / b).
    const FlooredDivision<V> d = floored_division(a, b);
    return select(b == V(T(0)), a / b, d.quotient);
  } else if constexpr (std::is_unsigned_v<T>) {
    return a / b;
  } else {
    const V quotient = a / b, rest = a - quotient * b;
    const auto step = (rest != V(T(0))) & ((rest ^ b) < V(T(0))) & (b != V(T(0)));
    return select(step, quotient - V(T(1)), quotient);
  }
}

template <class V> V remainder(V a, V b) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>) {
    return floored_division(a, b).remainder;
  } else {
    const V rest = select(b == V(T(0)), V(T(0)), a % b);
    if constexpr (std::is_unsigned_v<T>)
      return rest;
    else
      return select((rest != V(T(0))) & ((rest ^ b) < V(T(0))), rest + b, rest);
  }
}

/// Rounding to integers: integers are their own.
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

/// The remainder of truncated division: the sign of a. Exact as floored_division is.
template <class V> V fmod(V a, V b) {
  using T = ElementOfValue<V>;
  if constexpr (is_float_value<V>)
    return copysign(floored_division(abs(a), abs(b)).remainder, a);
  else
    return select(b == V(T(0)), V(T(0)), a % b);
}

/// The root of a^2 + b^2 without overflow or underflow on the way; infinite if either is, whatever the other.
template <class V> V hypot(V a, V b) {
  const V x = abs(a), y = abs(b);
  const V large = maximum(x, y), small = minimum(x, y), ratio = small / large;
  const V value = select(large == constant<V>(0), large, large * sqrt(fma(ratio, ratio, constant<V>(1))));
  return select((x == infinity<V>()) | (y == infinity<V>()), infinity<V>(), value);
}

}  // namespace fermata::math
