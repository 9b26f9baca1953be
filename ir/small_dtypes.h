// Conversions of 8- and 4-bit floats and 4- and 2-bit integers. Every backend must produce the same bits.
//
// A format is a row of kSmallFloats; the interpreter, eager loops, LLVM code and CUDA source are generated from the
// rows. The 8-bit formats are those of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022) and, with one zero
// and one NaN, of "8-bit Numerical Formats for Deep Neural Networks" (Noune et al., 2022); e2m1 is of the OCP
// Microscaling formats 1.0, and so is e8m0, the scale of a block: powers of two without sign and zero. A number beyond
// the largest converts to infinity, to NaN, or to the largest (e2m1 has neither), depending on the format.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ir/dtype.h"

namespace fermata {

struct SmallFloatFormat {
  unsigned magnitude_bits, fraction_bits;  // without the sign
  int bias;
  std::uint8_t largest;    // finite magnitude
  std::uint8_t infinity;   // magnitude; 0 if there is none
  std::uint8_t first_nan;  // magnitudes from here on are NaN; above all of them if there is no NaN
  std::uint8_t overflow;   // result for larger numbers, without the sign
  std::uint8_t nan;        // result for NaN, without the sign
  bool one_zero;           // the bits of -0 are the only NaN
  bool is_scale = false;   // exponents only: there is no sign, and 0 is the smallest power of two

  constexpr std::uint8_t sign_bit() const { return static_cast<std::uint8_t>(1u << magnitude_bits); }
  /// 2^e is the smallest normal number.
  constexpr int least_exponent() const { return 1 - bias; }
};

inline constexpr std::array kSmallFloats{
    SmallFloatFormat{7, 3, 7, 0x7e, 0, 0x7f, 0x7f, 0x7f, false},          // f8e4m3fn
    SmallFloatFormat{7, 2, 15, 0x7b, 0x7c, 0x7d, 0x7c, 0x7e, false},      // f8e5m2
    SmallFloatFormat{7, 3, 8, 0x7f, 0, 0x80, 0x80, 0x80, true},           // f8e4m3fnuz
    SmallFloatFormat{7, 2, 16, 0x7f, 0, 0x80, 0x80, 0x80, true},          // f8e5m2fnuz
    SmallFloatFormat{3, 1, 1, 7, 0, 8, 7, 8, false},                      // f4e2m1fn: NaN becomes -0
    SmallFloatFormat{8, 0, 127, 0xfe, 0, 0xff, 0xff, 0xff, false, true},  // f8e8m0fnu
};

template <class T> struct SmallFloatOf : std::false_type {};
template <unsigned kIndex> struct SmallFloatOf<SmallFloat<kIndex>> : std::true_type {
  static constexpr const SmallFloatFormat& format = kSmallFloats[kIndex];
};
template <class T> inline constexpr bool kIsSmallFloat = SmallFloatOf<T>::value;

template <class T> struct SmallIntegerOf : std::false_type {};
template <class T, unsigned kCount> struct SmallIntegerOf<SmallInteger<T, kCount>> : std::true_type {
  using Wide = T;
  static constexpr unsigned bits = kCount;
};
template <class T> inline constexpr bool kIsSmallInteger = SmallIntegerOf<T>::value;

/// Calls `f.template operator()<T>()` for the storage type of a small dtype; false for the others.
template <class F> constexpr bool visit_small(DType t, F&& f) {
  switch (t) {
#define FERMATA_DTYPE(enumerator, name, type, bytes, kind)                    \
  case DType::enumerator:                                                     \
    if constexpr (is_small(DType::enumerator)) f.template operator()<type>(); \
    return is_small(DType::enumerator);
#include "ir/dtypes.def"
  }
  return false;
}

constexpr const SmallFloatFormat& small_float(DType t) {
  if (t == DType::f8e8m0fnu) return kSmallFloats.back();
  return kSmallFloats[static_cast<std::size_t>(t) - static_cast<std::size_t>(DType::f8e4m3fn)];
}
/// The bits of a stored element; 8 and more are whole bytes.
constexpr unsigned bit_width(DType t) {
  if (is_small_float(t)) return small_float(t).magnitude_bits + (small_float(t).is_scale ? 0 : 1);
  unsigned bits = 8u * static_cast<unsigned>(byte_size(t));
  visit_small(t, [&]<class T>() {
    if constexpr (kIsSmallInteger<T>) bits = SmallIntegerOf<T>::bits;
  });
  return bits;
}
static_assert(bit_width(DType::f4e2m1fn) == 4 && bit_width(DType::f8e8m0fnu) == 8 && bit_width(DType::i2) == 2 &&
              bit_width(DType::f8e5m2) == 8);

/// 2^exponent as f32, for exponents of normal numbers.
constexpr float power_of_two_f32(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// The f32 bits of the smallest scale, 2^-127, which is subnormal in f32.
inline constexpr std::uint32_t kLeastScaleF32 = 0x00400000;
/// Added to the bits of a positive f32 so that its exponent is that of the nearest scale, with ties rounded up. Numbers
/// below 2^-126 round up unless they are at most the smallest scale, as in ml_dtypes.
inline constexpr std::uint32_t kScaleRounding = 0x00400000, kLeastScaleRounding = 0x003fffff;

template <unsigned kIndex> float to_float(SmallFloat<kIndex> x) {
  constexpr const SmallFloatFormat& f = kSmallFloats[kIndex];
  if constexpr (f.is_scale)
    return std::bit_cast<float>(x.bits == f.nan ? 0x7fc00000u
                                : x.bits == 0   ? kLeastScaleF32
                                                : std::uint32_t{x.bits} << 23);
  const std::uint32_t magnitude = x.bits & (f.sign_bit() - 1u);
  const std::uint32_t sign = (x.bits & f.sign_bit()) != 0 ? 0x80000000u : 0;
  if (f.one_zero && x.bits == f.sign_bit()) return std::bit_cast<float>(0x7fc00000u);
  if (magnitude >= f.first_nan) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (f.infinity != 0 && magnitude == f.infinity) return std::bit_cast<float>(sign | 0x7f800000u);
  // The exponent field differs from that of f32 in the bias; the product also handles subnormal numbers.
  const float scaled = std::bit_cast<float>(magnitude << (23 - f.fraction_bits)) * power_of_two_f32(127 - f.bias);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

/// The nearest scale, ties upward; NaN for numbers that are not positive.
inline std::uint8_t to_scale(double x) {
  constexpr std::uint8_t kNan = 0xff;
  if (!(x > 0) || x > 0x1p127 * 1.5) return kNan;
  if (x <= 0x1p-127) return 0;
  const int exponent = std::ilogb(x), next = std::ldexp(x, -exponent) >= 1.5 || exponent == -127 ? 1 : 0;
  return static_cast<std::uint8_t>(exponent + 127 + next);
}

/// The nearest number of the format, ties to even. Takes a double, so that it rounds only once.
template <class T> T to_small_float(double x) {
  constexpr const SmallFloatFormat& f = SmallFloatOf<T>::format;
  if constexpr (f.is_scale) return {to_scale(x)};
  const auto sign = static_cast<std::uint8_t>(std::signbit(x) ? f.sign_bit() : 0);
  std::uint32_t magnitude = f.overflow;
  if (x != x) {
    magnitude = f.nan;
  } else if (std::fabs(x) < 0x1p20) {
    const int exponent = std::max(x == 0 ? f.least_exponent() : std::ilogb(x), f.least_exponent());
    const double significand = std::nearbyint(std::ldexp(std::fabs(x), static_cast<int>(f.fraction_bits) - exponent));
    magnitude = (static_cast<std::uint32_t>(exponent + f.bias - 1) << f.fraction_bits) +
                static_cast<std::uint32_t>(significand);
    if (magnitude > f.largest) magnitude = f.overflow;
  }
  if (f.one_zero && (magnitude == 0 || magnitude == f.nan)) return {static_cast<std::uint8_t>(magnitude)};
  return {static_cast<std::uint8_t>(magnitude | sign)};
}

/// The integer encoded in the lowest bits.
template <class T, unsigned kBits> constexpr T to_integer(SmallInteger<T, kBits> x) {
  const auto shifted =
      static_cast<std::uint8_t>(static_cast<unsigned>(static_cast<std::uint8_t>(x.bits)) << (8 - kBits));
  return static_cast<T>(static_cast<T>(shifted) >> (8 - kBits));
}
/// Modulo 2^bits.
template <class T> constexpr T to_small_integer(typename SmallIntegerOf<T>::Wide x) { return {to_integer(T{x})}; }
template <class T> inline constexpr
    typename SmallIntegerOf<T>::Wide kSmallestOf = to_integer(T{static_cast<typename SmallIntegerOf<T>::Wide>(
        std::is_signed_v<typename SmallIntegerOf<T>::Wide> ? 1u << (SmallIntegerOf<T>::bits - 1) : 0)});
template <class T> inline constexpr
    typename SmallIntegerOf<T>::Wide kLargestOf = static_cast<typename SmallIntegerOf<T>::Wide>(
        (1u << (SmallIntegerOf<T>::bits - (std::is_signed_v<typename SmallIntegerOf<T>::Wide> ? 1 : 0))) - 1);

}  // namespace fermata
