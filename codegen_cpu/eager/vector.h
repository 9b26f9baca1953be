// SIMD values of a fixed number of lanes, with the interface of ir/scalar_program.h, over the vector extensions that
// GCC and Clang share. Primitives mean exactly what ir/prims.def says.
//
// Everything lives in a namespace named after the instruction set this file is compiled for (FERMATA_ISA), so that no
// instantiation of one set is ever linked into another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace fermata::eager::FERMATA_ISA {

/// Bytes of the widest register.
#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

template <class T, int N> struct RawOf { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <class T, int N> using Raw = typename RawOf<T, N>::type;

template <int kBytes> struct IntegerOf;
template <> struct IntegerOf<1> {
  using Signed = std::int8_t;
  using Unsigned = std::uint8_t;
};
template <> struct IntegerOf<2> {
  using Signed = std::int16_t;
  using Unsigned = std::uint16_t;
};
template <> struct IntegerOf<4> {
  using Signed = std::int32_t;
  using Unsigned = std::uint32_t;
};
template <> struct IntegerOf<8> {
  using Signed = std::int64_t;
  using Unsigned = std::uint64_t;
};
template <int kBytes> using SignedOf = typename IntegerOf<kBytes>::Signed;
template <int kBytes> using UnsignedOf = typename IntegerOf<kBytes>::Unsigned;

template <class To, class From> To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)from;
}

/// N lanes of T. Masks (T = bool) have lanes of kMaskBytes, all ones or all zeros: the width of the elements that a
/// kernel mostly compares.
template <class T, int N, int kMaskBytes> class Vector {
 public:
  using Element = T;
  template <class U> using Rebind = Vector<U, N, kMaskBytes>;
  using Mask = Vector<bool, N, kMaskBytes>;
  static constexpr int kLanes = N;
  static constexpr bool kIsMask = std::is_same_v<T, bool>, kIsFloat = std::is_floating_point_v<T>;
  static constexpr bool kIsInteger = !kIsMask && !kIsFloat;
  static constexpr int kLaneBytes = kIsMask ? kMaskBytes : static_cast<int>(sizeof(T));
  using Lane = std::conditional_t<kIsMask, SignedOf<kMaskBytes>, T>;
  using Register = Raw<Lane, N>;
  using Unsigned = Raw<UnsignedOf<kLaneBytes>, N>;

  Register raw;

  Vector(T value) : raw(splat(value)) {}
  static Vector of(Register r) { return Vector(r, 0); }

  friend Vector operator+(Vector a, Vector b) {
    return arithmetic(a, b, [](auto x, auto y) { return x + y; });
  }
  friend Vector operator-(Vector a, Vector b) {
    return arithmetic(a, b, [](auto x, auto y) { return x - y; });
  }
  friend Vector operator*(Vector a, Vector b) {
    return arithmetic(a, b, [](auto x, auto y) { return x * y; });
  }
  friend Vector operator/(Vector a, Vector b) {
    if constexpr (kIsFloat)
      return of(a.raw / b.raw);
    else
      return by_lane(a, b, [](T x, T y) { return divided(x, y); });
  }
  friend Vector operator%(Vector a, Vector b) requires kIsInteger { return a - a / b * b; }
  friend Vector operator-(Vector a) {
    if constexpr (kIsFloat)
      return of(-a.raw);
    else
      return of(reinterpret<Register>(Unsigned{} - reinterpret<Unsigned>(a.raw)));
  }
  friend Vector operator&(Vector a, Vector b) requires(!kIsFloat) { return of(a.raw & b.raw); }
  friend Vector operator|(Vector a, Vector b) requires(!kIsFloat) { return of(a.raw | b.raw); }
  friend Vector operator^(Vector a, Vector b) requires(!kIsFloat) { return of(a.raw ^ b.raw); }
  friend Vector operator~(Vector a) requires(!kIsFloat) { return of(~a.raw); }
  friend Vector operator!(Vector a) requires kIsMask { return of(~a.raw); }
  friend Vector operator<<(Vector a, Vector b) requires kIsInteger {
    if constexpr (sizeof(T) == 1)
      return by_lane(a, b, [](T x, T y) { return in_width(y) ? static_cast<T>(x << y) : T(0); });
    else
      return of(in_width_lanes(b) ? reinterpret<Register>(reinterpret<Unsigned>(a.raw) << counts(b)) : Register{});
  }
  friend Vector operator>>(Vector a, Vector b) requires kIsInteger {
    if constexpr (sizeof(T) == 1) {
      return by_lane(a, b, [](T x, T y) {
        return static_cast<T>(in_width(y) ? x >> y : std::is_signed_v<T> && x < T(0) ? -1 : 0);
      });
    } else {
      const Register shifted = a.raw >> reinterpret<Register>(counts(b));
      if constexpr (std::is_signed_v<T>)
        return of(in_width_lanes(b) ? shifted : a.raw >> (kLaneBytes * 8 - 1));
      else
        return of(in_width_lanes(b) ? shifted : Register{});
    }
  }
  friend Mask operator==(Vector a, Vector b) {
    if constexpr (kIsMask)
      return of(~(a.raw ^ b.raw));
    else
      return mask(a.raw == b.raw);
  }
  friend Mask operator!=(Vector a, Vector b) {
    if constexpr (kIsMask)
      return a ^ b;
    else
      return mask(a.raw != b.raw);
  }
  friend Mask operator<(Vector a, Vector b) {
    if constexpr (kIsMask)
      return of(~a.raw & b.raw);
    else
      return mask(a.raw < b.raw);
  }
  friend Mask operator<=(Vector a, Vector b) {
    if constexpr (kIsMask)
      return of(~a.raw | b.raw);
    else
      return mask(a.raw <= b.raw);
  }
  friend Mask operator>(Vector a, Vector b) { return b < a; }
  friend Mask operator>=(Vector a, Vector b) { return b <= a; }
  friend Vector select(Mask m, Vector a, Vector b) {
    if constexpr (kIsMask)
      return (m & a) | (~m & b);
    else
      return of(lanes_of(m) ? a.raw : b.raw);
  }
  friend Vector min(Vector a, Vector b) requires(!kIsMask) {
#if defined(__AVX512F__)  // GCC joins a selection that follows with masks, which take longer than the instruction
    if constexpr (std::is_same_v<T, float> && sizeof(Register) == 64)
      return of((Register)_mm512_maskz_min_ps(0xffff, (__m512)a.raw, (__m512)b.raw));
    if constexpr (std::is_same_v<T, double> && sizeof(Register) == 64)
      return of((Register)_mm512_maskz_min_pd(0xff, (__m512d)a.raw, (__m512d)b.raw));
#endif
    return of(a.raw < b.raw ? a.raw : b.raw);
  }
  friend Vector max(Vector a, Vector b) requires(!kIsMask) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float> && sizeof(Register) == 64)
      return of((Register)_mm512_maskz_max_ps(0xffff, (__m512)a.raw, (__m512)b.raw));
    if constexpr (std::is_same_v<T, double> && sizeof(Register) == 64)
      return of((Register)_mm512_maskz_max_pd(0xff, (__m512d)a.raw, (__m512d)b.raw));
#endif
    return of(a.raw > b.raw ? a.raw : b.raw);
  }
  friend Vector abs(Vector a) requires(!kIsMask) {
    if constexpr (kIsFloat) {
      constexpr auto kMagnitude = std::numeric_limits<SignedOf<kLaneBytes>>::max();
      return of(reinterpret<Register>(reinterpret<Raw<SignedOf<kLaneBytes>, N>>(a.raw) & kMagnitude));
    } else if constexpr (std::is_signed_v<T>) {
      return of(a.raw < Register{} ? (-a).raw : a.raw);
    } else {
      return a;
    }
  }

  /// An all-ones or all-zeros lane of this width per lane of a mask.
  static Raw<SignedOf<kLaneBytes>, N> lanes_of(Mask m) { return resized<SignedOf<kLaneBytes>>(m.raw); }
  template <class U, class R> static Raw<U, N> resized(R raw) {
    if constexpr (std::is_same_v<R, Raw<U, N>>)
      return raw;
    else if constexpr (sizeof(R) == sizeof(Raw<U, N>))
      return reinterpret<Raw<U, N>>(raw);
    else
      return __builtin_convertvector(raw, Raw<U, N>);
  }

  /// f of each lane, in memory: for what no instruction does.
  template <class F> static Vector by_lane(Vector a, Vector b, F f) {
    T x[N], y[N];
    std::memcpy(x, &a.raw, sizeof x), std::memcpy(y, &b.raw, sizeof y);
    for (int i = 0; i < N; ++i) x[i] = f(x[i], y[i]);
    std::memcpy(&a.raw, x, sizeof x);
    return a;
  }

 private:
  Vector(Register r, int) : raw(r) {}
  static Register splat(T value) {
    if constexpr (kIsMask)
      return value ? ~Register{} : Register{};
    else
      return value - Register{};  // not +, which would lose the sign of -0
  }
  template <class F> static Vector arithmetic(Vector a, Vector b, F f) {
    if constexpr (kIsFloat)
      return of(f(a.raw, b.raw));
    else
      return of(reinterpret<Register>(f(reinterpret<Unsigned>(a.raw), reinterpret<Unsigned>(b.raw))));
  }
  template <class R> static Mask mask(R compared) { return Mask::of(resized<SignedOf<kMaskBytes>>(compared)); }
  static T divided(T a, T b) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return static_cast<T>(UnsignedOf<kLaneBytes>(0) - static_cast<UnsignedOf<kLaneBytes>>(a));
    return static_cast<T>(a / b);
  }
  static bool in_width(T count) { return static_cast<UnsignedOf<kLaneBytes>>(count) < kLaneBytes * 8; }
  static auto in_width_lanes(Vector count) {
    return reinterpret<Unsigned>(count.raw) < static_cast<UnsignedOf<kLaneBytes>>(kLaneBytes * 8);
  }
  static Unsigned counts(Vector count) {
    return reinterpret<Unsigned>(count.raw) & static_cast<UnsignedOf<kLaneBytes>>(kLaneBytes * 8 - 1);
  }
};

/// Elements of `T` per register, and the vector that fills one.
template <class T> inline constexpr int kLanesOf = kRegisterBytes / static_cast<int>(sizeof(T));
template <class T> using FullVector = Vector<T, kLanesOf<T>, static_cast<int>(sizeof(T))>;

}  // namespace fermata::eager::FERMATA_ISA

#include "codegen_cpu/eager/vector_convert.h"
#include "codegen_cpu/eager/vector_float.h"
#include "codegen_cpu/eager/vector_memory.h"
