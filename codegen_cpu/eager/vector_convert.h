// Conversions between SIMD values of different elements, with the meaning of Prim::convert and Prim::bitcast.
#pragma once

#include "codegen_cpu/eager/vector.h"

namespace fermata::eager::FERMATA_ISA {

template <class U, class T, int N, int M> Vector<U, N, M> bitcast(Vector<T, N, M> a) {
  static_assert(sizeof(U) == sizeof(T));
  return Vector<U, N, M>::of(reinterpret<Raw<U, N>>(a.raw));
}

/// Floats to integers: towards zero, saturating, NaN to 0. The limits are powers of two, which both types hold.
template <class U, class T, int N, int M> Vector<U, N, M> convert_saturating(Vector<T, N, M> a) {
  using V = Vector<T, N, M>;
  using W = Vector<U, N, M>;
  using L = std::numeric_limits<U>;
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
  else if constexpr (std::is_integral_v<U> && std::is_floating_point_v<T>)
    return convert_saturating<U>(a);
  else if constexpr (std::is_integral_v<U> && sizeof(U) == sizeof(T))
    return bitcast<U>(a);
  else
    return W::of(__builtin_convertvector(a.raw, Raw<U, N>));
}

}  // namespace fermata::eager::FERMATA_ISA
