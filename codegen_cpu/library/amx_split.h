// A number of f32 as the sum of three of bf16, for files that are compiled for AVX-512: everything has internal
// linkage.
#pragma once

#include <immintrin.h>

namespace fermata {
namespace {

[[maybe_unused]] __m512i magnitude(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
/// The nearest bf16, as f32; of finite numbers that are not close to overflow.
[[maybe_unused]] __m512 rounded(__m512 x) {
  const __m512i above = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(above, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
/// x = x1 + x2 + x3, each the nearest bf16 to what the earlier ones leave, for pairs of numbers: the parts of a in the
/// low halves of to[0..3), those of b in the high ones. `most` joins magnitudes.
[[maybe_unused]] void split(__m512 a, __m512 b, __m512i* to, __m512i& most) {
  most = _mm512_max_epu32(most, _mm512_max_epu32(magnitude(a), magnitude(b)));
  for (int part = 0; part < 3; ++part) {
    const __m512 first = part == 2 ? a : rounded(a), second = part == 2 ? b : rounded(b);
    to[part] = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16), _mm512_castps_si512(second));
    a = _mm512_sub_ps(a, first), b = _mm512_sub_ps(b, second);
  }
}

}  // namespace
}  // namespace fermata
