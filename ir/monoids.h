// The monoids of reductions: state, identity, lift, combine, finish.
//
// Written once over the value interface of scalar_program.h, like formulas: recorded for the code generators, and
// instantiated over SIMD types for the eager kernels. `index` is the i64 position along the reduced axis.
#pragma once

#include <cstdint>
#include <limits>
#include <tuple>

#include "ir/scalar_math.h"

namespace fermata {

template <class T> constexpr T lowest_or_minus_infinity() {
  if constexpr (std::numeric_limits<T>::has_infinity)
    return -std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::lowest();
}
template <class T> constexpr T highest_or_infinity() {
  if constexpr (std::numeric_limits<T>::has_infinity)
    return std::numeric_limits<T>::infinity();
  else
    return std::numeric_limits<T>::max();
}

/// Monoids with one component, the element type itself.
#define FERMATA_MONOID(name, identity_value, combined)                                  \
  struct name##_monoid {                                                                \
    template <class T> static std::tuple<T> identity() { return {identity_value}; }     \
    template <class V, class I> static std::tuple<V> lift(V x, I) { return {x}; }       \
    template <class V> static std::tuple<V> combine(std::tuple<V> l, std::tuple<V> r) { \
      const V a = std::get<0>(l), b = std::get<0>(r);                                   \
      return {combined};                                                                \
    }                                                                                   \
    template <class V> static V finish(std::tuple<V> s) { return std::get<0>(s); }      \
  };
FERMATA_MONOID(sum, T(0), a + b)
FERMATA_MONOID(prod, T(1), a* b)
FERMATA_MONOID(max, lowest_or_minus_infinity<T>(), math::maximum(b, a))
FERMATA_MONOID(min, highest_or_infinity<T>(), math::minimum(b, a))
FERMATA_MONOID(all, T(true), a& b)
FERMATA_MONOID(any, T(false), a | b)
#undef FERMATA_MONOID

/// Position of an extreme value. NaN counts as the extreme; the first of equal positions wins for any reduction tree.
/// `replaces`: whether b, which comes after a, takes its place.
#define FERMATA_ARG_MONOID(name, worst, better)                                                           \
  struct name##_monoid {                                                                                  \
    template <class T> static std::tuple<T, std::int64_t> identity() {                                    \
      return {worst, std::numeric_limits<std::int64_t>::max()};                                           \
    }                                                                                                     \
    template <class V, class I> static std::tuple<V, I> lift(V x, I index) { return {x, index}; }         \
    template <class V, class I> static std::tuple<V, I> combine(std::tuple<V, I> l, std::tuple<V, I> r) { \
      const V a = std::get<0>(l), b = std::get<0>(r);                                                     \
      const I i = std::get<1>(l), j = std::get<1>(r);                                                     \
      const auto a_nan = a != a, b_nan = b != b;                                                          \
      const auto tied = (a == b) | (a_nan & b_nan);                                                       \
      const auto take = (b_nan & (!a_nan)) | ((!a_nan) & (better)) | (tied & (j < i));                    \
      return {select(take, b, a), select(take, j, i)};                                                    \
    }                                                                                                     \
    template <class V, class I> static I finish(std::tuple<V, I> s) { return std::get<1>(s); }            \
    template <class V> static auto replaces(V b, V a) { return (better) | ((b != b) & (a == a)); }        \
  };
FERMATA_ARG_MONOID(argmax, lowest_or_minus_infinity<T>(), b > a)
FERMATA_ARG_MONOID(argmin, highest_or_infinity<T>(), b < a)
#undef FERMATA_ARG_MONOID

}  // namespace fermata
