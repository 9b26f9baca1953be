// Short special functions: products with logarithms, and parts of numbers.
#pragma once

#include <limits>

#include "ir/scalar_math/arithmetic.h"
#include "ir/scalar_math/logarithm.h"

namespace fermata::math {

template <class V> V xlogy(V a, V b) { return select((a == V(0)) & (b == b), V(0), a * log(b)); }
template <class V> V xlog1py(V a, V b) { return select((a == V(0)) & (b == b), V(0), a * log1p(b)); }

/// -x log(x).
template <class V> V entr(V x) {
  const V below = select(x < V(0), -infinity<V>(), x);
  return select(x > V(0), -x * log(x), select(x == V(0), V(0), below));
}

template <class V> V heaviside(V a, V b) {
  const V none(0), step = select(a > none, V(1), select(a < none, none, a));
  return select(a == none, b, step);
}

/// a 2^n in steps of which only the last one rounds; |n| is clamped so that three powers suffice.
template <class V> V scaled_by_power(V a, V exponent) {
  using T = ElementOfValue<V>;
  constexpr T kBias = FormatOf<V>::kBias, kMost = 2 * kBias + FormatOf<V>::kMantissaBits;
  const V n = max(V(-kMost), min(V(kMost), rint(exponent)));
  // One power if it is representable; otherwise three, of which the first two do not produce subnormals.
  const V third = select(abs(n) < V(kBias), V(T(0)), trunc(n * constant<V>(1.0 / 3))), rest = n - third - third;
  const V round = V(kRoundToExponent<T>);
  const auto power = [&](V k) { return power_of_two<V>(bits_of(k + round)); };
  const V sized = a * power(third) * power(third) * power(rest);
  return select(exponent == exponent, sized, exponent);
}

/// The e of |x| = 2^e f with 1/2 <= f < 1.
template <class V> V exponent_of(V x) {
  using T = ElementOfValue<V>;
  using F = FormatOf<V>;
  using B = UnsignedBits<V>;
  using U = typename F::Unsigned;
  constexpr T kUp = static_cast<T>(std::uint64_t{1} << (F::kMantissaBits + 1));
  const auto subnormal = abs(x) < V(std::numeric_limits<T>::min());
  const B bits = bits_of(abs(select(subnormal, x * V(kUp), x)));
  const V field = convert<T>(bitcast<typename F::Signed>(bits >> B(static_cast<U>(F::kMantissaBits))));
  const V e = field - V(static_cast<T>(F::kBias - 1)) - select(subnormal, V(T(F::kMantissaBits + 1)), V(T(0)));
  return select((x == V(0)) | !(abs(x) < infinity<V>()), V(T(0)), e);
}

}  // namespace fermata::math
