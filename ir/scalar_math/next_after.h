// The next representable float, by integer operations on bits. Not part of ir/scalar_math.h: no other formula needs it.
#pragma once

#include "ir/scalar_math/floating.h"

namespace fermata::math {

/// The set of floats: all of the element type, or those of f16 or bf16, as f32.
enum class FloatsOf : std::uint8_t { element, f16, bf16 };

/// The float after a in the direction of b; b if they are equal, NaN if either is NaN. One step adds to the last place
/// as an integer, carrying into the exponent. f16 has a smaller exponent range than f32, so its subnormals are f32
/// numbers with a fixed spacing.
template <FloatsOf kFloats, class V> V next_after(V a, V b) {
  using F = FormatOf<V>;
  using U = typename F::Unsigned;
  constexpr unsigned kSpare = kFloats == FloatsOf::f16 ? 13 : kFloats == FloatsOf::bf16 ? 16 : 0;
  const UnsignedBits<V> step(U{1} << kSpare), bits = bits_of(abs(a));
  const V zero = constant<V>(0);
  const auto grows = (a < b) == (a > zero);
  V size = from_bits<V>(select(grows, bits + step, bits - step));
  V least = from_bits<V>(step);
  if constexpr (kFloats == FloatsOf::f16) {
    const V normal = constant<V>(0x1p-14), magnitude = abs(a);
    least = constant<V>(0x1p-24);
    size = select(magnitude > constant<V>(65504), constant<V>(65504), size);  // from infinity: away from it
    size = select(grows & (magnitude < normal), magnitude + least,
                  select((!grows) & (magnitude <= normal), magnitude - least, size));
  }
  const V next = select(a == zero, with_sign_of(least, b), with_sign_of(size, a));
  return select(a == b, b, select((a != a) | (b != b), a + b, next));
}

}  // namespace fermata::math
