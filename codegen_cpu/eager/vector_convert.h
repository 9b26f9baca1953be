// Conversions between SIMD values of different elements, with the meaning of Prim::convert and Prim::bitcast.
#pragma once

#include "codegen_cpu/eager/vector.h"

namespace fermata::eager::FERMATA_ISA {

template <class U, class T, int N, int M> Vector<U, N, M> bitcast(Vector<T, N, M> a) {
  static_assert(sizeof(U) == sizeof(T));
  return Vector<U, N, M>::of(reinterpret<Raw<U, N>>(a.raw));
}

/// Between integers, or an integer to a float. GCC converts lanes one by one where their widths differ by more than a
/// factor of two, so that is done in steps.
template <class U, class T, int N, int M> Vector<U, N, M> convert_integer(Vector<T, N, M> a) {
  constexpr std::size_t kFrom = sizeof(T), kTo = sizeof(U);
  if constexpr (std::is_floating_point_v<U> && kFrom < 4) {
    return convert_integer<U>(convert_integer<std::int32_t>(a));
  } else if constexpr (std::is_integral_v<U> && kFrom == kTo) {
    return bitcast<U>(a);
  } else if constexpr (std::is_integral_v<U> && (kTo > 2 * kFrom || 2 * kTo < kFrom)) {
    constexpr int kBytes = static_cast<int>(kTo > kFrom ? 2 * kFrom : kFrom / 2);
    using Next = std::conditional_t<std::is_signed_v<T>, SignedOf<kBytes>, UnsignedOf<kBytes>>;
    return convert_integer<U>(convert_integer<Next>(a));
  } else {
    return Vector<U, N, M>::of(__builtin_convertvector(a.raw, Raw<U, N>));
  }
}

/// Floats to integers: towards zero, saturating, NaN to 0.
template <class U, class T, int N, int M> Vector<U, N, M> convert_saturating(Vector<T, N, M> a) {
  using V = Vector<T, N, M>;
  using W = Vector<U, N, M>;
  using L = std::numeric_limits<U>;
  if constexpr (L::digits < std::numeric_limits<T>::digits && sizeof(U) < 8) {  // floats hold the limits
    const V upper = select(a < V(T(L::max())), a, V(T(L::max())));
    const V inside = select(upper > V(T(L::min())), upper, V(T(L::min())));
    const V number = select(a == a, inside, V(T(0)));
    using Wide = std::conditional_t<sizeof(U) < 4, std::int32_t, U>;
    return convert_integer<U>(Vector<Wide, N, M>::of(__builtin_convertvector(number.raw, Raw<Wide, N>)));
  }
  // The limits are powers of two, which both types hold.
  constexpr T kEnd = static_cast<T>(std::uint64_t{1} << (L::digits - 1)) * 2;
  constexpr T kBegin = L::is_signed ? -kEnd : T(0);
  const auto above = a >= V(kEnd), below = a <= V(kBegin);
  const V inside = select((a < V(kEnd)) & (a > V(kBegin)), a, V(T(0)));
  const W converted = W::of(__builtin_convertvector(inside.raw, Raw<U, N>));
  return select(above, W(L::max()), select(below, W(L::min()), converted));
}

template <class U, class T, int N, int M> Vector<U, N, M> convert(Vector<T, N, M> a) {
  using V = Vector<T, N, M>;
  using W = Vector<U, N, M>;
  if constexpr (std::is_same_v<U, T>)
    return a;
  else if constexpr (std::is_same_v<U, bool>)
    return a != V(T(0));
  else if constexpr (std::is_same_v<T, bool>)
    return select(a, W(U(1)), W(U(0)));
  else if constexpr (std::is_integral_v<T>)
    return convert_integer<U>(a);
  else if constexpr (std::is_integral_v<U>)
    return convert_saturating<U>(a);
  else
    return W::of(__builtin_convertvector(a.raw, Raw<U, N>));
}

}  // namespace fermata::eager::FERMATA_ISA
