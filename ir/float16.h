// Conversions of f16 and bf16 in integer arithmetic: the reference bits for every backend.
//
// Narrowing takes a double, which holds every f32 exactly, and rounds once to nearest even; going through f32 from a
// wider type would round twice.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "ir/dtype.h"

namespace fermata {

inline float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline float to_float(Float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = x.bits >> 10 & 0x1fu, fraction = x.bits & 0x3ffu;
  if (exponent == 0x1f) {  // infinity or NaN, which is made quiet
    const std::uint32_t quiet = fraction == 0 ? 0 : 0x400000u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | fraction << 13);
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? magnitude : -magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

/// The bits of x rounded to the IEEE-like format of 1 + kExponentBits + kFractionBits = 16 bits.
template <unsigned kExponentBits, unsigned kFractionBits> std::uint16_t narrowed_bits(double x) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr std::uint32_t kInfinity = ((1u << kExponentBits) - 1u) << kFractionBits;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << 15;
  std::uint32_t magnitude = kInfinity;
  if (x != x) {
    const std::uint64_t payload = (bits & 0xfffffffffffffull) >> (52 - kFractionBits);
    magnitude |= 1u << (kFractionBits - 1) | static_cast<std::uint32_t>(payload);
  } else if (std::fabs(x) < 0x1p129) {
    // The significand as an integer in units of the format's spacing; adding it to the exponent field also carries a
    // significand that rounds up into the next binade, and the largest one into infinity.
    const int exponent = std::max(x == 0 ? 1 - kBias : std::ilogb(x), 1 - kBias);
    const double significand = std::nearbyint(std::ldexp(std::fabs(x), static_cast<int>(kFractionBits) - exponent));
    const auto field = static_cast<std::uint32_t>(exponent + kBias - 1) << kFractionBits;
    magnitude = std::min(field + static_cast<std::uint32_t>(significand), kInfinity);
  }
  return static_cast<std::uint16_t>(sign | magnitude);
}
inline Float16 to_float16(double x) { return {narrowed_bits<5, 10>(x)}; }
inline BFloat16 to_bfloat16(double x) { return {narrowed_bits<8, 7>(x)}; }

}  // namespace fermata
