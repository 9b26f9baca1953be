// f32 to f16 and bf16 and back in a handful of integer instructions: the bits of ir/float16.h, fast enough for a loop.
//
// Always inlined, so that a file built for one instruction set never lends its copy to another.
#pragma once

#include <bit>
#include <cstdint>

namespace fermata {

[[gnu::always_inline]] inline float widen_bfloat16(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

[[gnu::always_inline]] inline std::uint16_t narrow_bfloat16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;  // to nearest even
  return static_cast<std::uint16_t>(x != x ? bits >> 16 | 0x40u : rounded);
}

[[gnu::always_inline]] inline float widen_float16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  // The exponent is rebiased by a multiplication, which is exact and normalizes subnormals on the way.
  const auto scaled = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) * 0x1p112f);
  const std::uint32_t quiet = magnitude > 0x0f800000u ? 0x400000u : 0u;
  const std::uint32_t special = 0x7f800000u | quiet | (magnitude & 0x7fffffu);
  return __builtin_bit_cast(float, sign | (magnitude >= 0x0f800000u ? special : scaled));
}

[[gnu::always_inline]] inline std::uint16_t narrow_float16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and more; what lies between the largest f16 and that rounds below
    result = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal
    result = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else {  // the spacing of floats at 0.5 is that of f16 subnormals, so this addition rounds
    result = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace fermata
