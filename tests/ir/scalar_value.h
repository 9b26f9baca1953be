// A value of one element with the interface of ir/scalar_program.h: formulas run on it at the speed of plain C++, so
// that tests can sweep millions of arguments.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace fermata {

template <class T> struct Scalar {
  using Element = T;
  template <class U> using Rebind = Scalar<U>;
  using Mask = Scalar<bool>;
  T v{};

  Scalar() = default;
  Scalar(T value) : v(value) {}
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  static constexpr bool kInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;
  template <class R> static Scalar wrap(R r) { return Scalar(static_cast<T>(r)); }
  static auto wide(Scalar a) {
    if constexpr (kInteger)
      return static_cast<std::uint64_t>(a.v);
    else
      return a.v;
  }

  friend Scalar operator+(Scalar a, Scalar b) { return wrap(wide(a) + wide(b)); }
  friend Scalar operator-(Scalar a, Scalar b) { return wrap(wide(a) - wide(b)); }
  friend Scalar operator*(Scalar a, Scalar b) { return wrap(wide(a) * wide(b)); }
  friend Scalar operator/(Scalar a, Scalar b) {
    if constexpr (kFloat)
      return a.v / b.v;
    else if (b.v == 0)
      return T{0};
    else if (std::is_signed_v<T> && b.v == static_cast<T>(-1))
      return -a;
    else
      return wrap(a.v / b.v);
  }
  friend Scalar operator%(Scalar a, Scalar b) {
    if constexpr (kFloat)
      return std::fmod(a.v, b.v);
    else
      return a - a / b * b;
  }
  friend Scalar operator-(Scalar a) {
    if constexpr (kFloat)
      return -a.v;
    else
      return wrap(std::uint64_t{0} - wide(a));
  }
  friend Scalar operator&(Scalar a, Scalar b) requires(!kFloat) { return wrap(a.v & b.v); }
  friend Scalar operator|(Scalar a, Scalar b) requires(!kFloat) { return wrap(a.v | b.v); }
  friend Scalar operator^(Scalar a, Scalar b) requires(!kFloat) { return wrap(a.v ^ b.v); }
  friend Scalar operator~(Scalar a) requires(!kFloat) {
    if constexpr (std::is_same_v<T, bool>)
      return !a.v;
    else
      return wrap(~a.v);
  }
  friend Scalar operator!(Scalar a) requires std::is_same_v<T, bool> { return !a.v; }
  static bool in_width(Scalar b) { return wide(b) < sizeof(T) * 8; }
  friend Scalar operator<<(Scalar a, Scalar b) requires kInteger {
    return in_width(b) ? wrap(wide(a) << wide(b)) : Scalar(T{0});
  }
  friend Scalar operator>>(Scalar a, Scalar b) requires kInteger {
    if (in_width(b)) return wrap(a.v >> b.v);
    return wrap(std::is_signed_v<T> && a.v < T{0} ? -1 : 0);
  }
  friend Mask operator==(Scalar a, Scalar b) { return a.v == b.v; }
  friend Mask operator!=(Scalar a, Scalar b) { return a.v != b.v; }
  friend Mask operator<(Scalar a, Scalar b) { return a.v < b.v; }
  friend Mask operator<=(Scalar a, Scalar b) { return a.v <= b.v; }
  friend Mask operator>(Scalar a, Scalar b) { return a.v > b.v; }
  friend Mask operator>=(Scalar a, Scalar b) { return a.v >= b.v; }
  friend Scalar select(Scalar<bool> m, Scalar a, Scalar b) { return m.v ? a : b; }
  friend Scalar min(Scalar a, Scalar b) { return a.v < b.v ? a : b; }
  friend Scalar max(Scalar a, Scalar b) { return a.v > b.v ? a : b; }
  friend Scalar fma(Scalar a, Scalar b, Scalar c) requires kFloat { return std::fma(a.v, b.v, c.v); }
  friend Scalar sqrt(Scalar a) requires kFloat { return std::sqrt(a.v); }
  friend Scalar floor(Scalar a) requires kFloat { return std::floor(a.v); }
  friend Scalar ceil(Scalar a) requires kFloat { return std::ceil(a.v); }
  friend Scalar trunc(Scalar a) requires kFloat { return std::trunc(a.v); }
  friend Scalar rint(Scalar a) requires kFloat { return std::nearbyint(a.v); }
  friend Scalar abs(Scalar a) {
    if constexpr (kFloat)
      return std::fabs(a.v);
    else
      return a.v < T{0} ? -a : a;
  }
  friend Scalar mul_high(Scalar a, Scalar b) requires(kInteger && sizeof(T) >= 4) {
    using Wide =
        std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                           unsigned __int128>;
    return wrap(static_cast<Wide>(a.v) * static_cast<Wide>(b.v) >> (sizeof(T) * 8));
  }
};

/// Conversions whose value is representable or wraps; saturation is not needed by the functions under test.
template <class U, class T> Scalar<U> convert(Scalar<T> a) { return Scalar<U>(static_cast<U>(a.v)); }
template <class U, class T> Scalar<U> bitcast(Scalar<T> a) {
  static_assert(sizeof(U) == sizeof(T));
  Scalar<U> r;
  std::memcpy(&r.v, &a.v, sizeof(U));
  return r;
}

}  // namespace fermata
