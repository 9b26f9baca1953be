// The remainder of truncated division of floats, exact for all operands: Prim::rem. A fast path for nearly all
// operands, and the steps of a long division for the others, for backends that expand the primitive.
//
// Both are dataflow over the value interface of ir/scalar_program.h, like the rest of ir/scalar_math; only the loop
// over the steps is the backend's. Operands and results are magnitudes; the sign is that of the dividend.
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

template <class V> struct QuickRemainder {
  V rest;
  typename V::Mask is_long;  // rest is invalid: the quotient has more bits than a float
};

/// For magnitudes x and y, including NaN and infinity. The quotient x / y is rounded, so trunc may be one too high. The
/// remainder is a multiple of the last place of y and at most y, so fma computes it exactly, and its sign shows this
/// case.
template <class V> QuickRemainder<V> quick_remainder(V x, V y) {
  using T = ElementOfValue<V>;
  constexpr T kEnd = static_cast<T>(std::uint64_t{2} << FormatOf<V>::kMantissaBits);  // quotients below are integers
  const V zero = V(T(0)), quotient = trunc(x / y);
  const V left = fma(-quotient, y, x);
  const V rest = select(x < y, x, select(left < zero, left + y, left));  // x < y, as y may be infinite
  return {rest, (quotient >= V(kEnd)) & (x < infinity<V>()) & (y > zero)};
}

/// x and y as significands from [1, 2) times powers of two.
template <class V> struct LongDivision {
  V rest, divisor;         // significands; rest < divisor
  SignedBits<V> left;      // remaining quotient bits; done if not positive
  SignedBits<V> exponent;  // of y, biased
};

template <class V> struct Significand {
  V value;
  SignedBits<V> exponent;  // biased; not positive for subnormals
};

template <class V> Significand<V> significand_of(V size) {
  using T = ElementOfValue<V>;
  using F = FormatOf<V>;
  using S = typename F::Signed;
  using U = typename F::Unsigned;
  constexpr int kMore = F::kMantissaBits + 1;
  const auto subnormal = size < V(std::numeric_limits<T>::min());
  const UnsignedBits<V> bits = bits_of(select(subnormal, size * V(static_cast<T>(std::uint64_t{1} << kMore)), size));
  const SignedBits<V> raw = bitcast<S>(bits >> UnsignedBits<V>(U{F::kMantissaBits}));
  return {from_bits<V>((bits & UnsignedBits<V>((U{1} << F::kMantissaBits) - 1)) |
                       UnsignedBits<V>(U{F::kBias} << F::kMantissaBits)),
          select(subnormal, raw - SignedBits<V>(S{kMore}), raw)};
}

/// For finite magnitudes above 0; done immediately if x is smaller.
template <class V> LongDivision<V> begin_remainder(V x, V y) {
  const Significand<V> a = significand_of(x), b = significand_of(y);
  return {select(a.value >= b.value, a.value - b.value, a.value), b.value, a.exponent - b.exponent, b.exponent};
}

/// Processes as many quotient bits as a float holds.
template <class V> LongDivision<V> continue_remainder(const LongDivision<V>& at) {
  using T = ElementOfValue<V>;
  using F = FormatOf<V>;
  using S = typename F::Signed;
  const SignedBits<V> zero(S{0});
  const SignedBits<V> bits = min(max(at.left, zero), SignedBits<V>(S{F::kMantissaBits}));
  const V scale = from_bits<V>(
      bitcast<typename F::Unsigned>((bits + SignedBits<V>(S{F::kBias})) << SignedBits<V>(S{F::kMantissaBits})));
  const V scaled = at.rest * scale, left = fma(-trunc(scaled / at.divisor), at.divisor, scaled);
  return {select(left < V(T(0)), left + at.divisor, left), at.divisor, at.left - bits, at.exponent};
}

/// The magnitude of the remainder, scaled in two steps because a single factor could be subnormal.
template <class V> V finish_remainder(const LongDivision<V>& done) {
  using F = FormatOf<V>;
  using S = typename F::Signed;
  const SignedBits<V> one(S{1}), normal = max(done.exponent, one), below = min(done.exponent, one) - one;
  const auto power = [](SignedBits<V> biased) {
    return from_bits<V>(bitcast<typename F::Unsigned>(biased << SignedBits<V>(S{F::kMantissaBits})));
  };
  return done.rest * power(below + SignedBits<V>(S{F::kBias})) * power(normal);
}

}  // namespace fermata::math
