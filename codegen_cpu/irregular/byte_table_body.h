// The body of byte_table_*.cpp.
//
// With AVX-512 VBMI two shuffles find a byte in 256, one for each half of the table. Else each of 16 shuffles finds
// those in 16 bytes of the table: a shuffle gives zero where the highest bit is set, as it is after a saturating
// addition wherever the place, counted from those 16, is not below 16.
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/byte_table.h"

namespace fermata {
namespace {

inline void look_up_each(const ByteTable& table, const std::uint8_t* bytes, std::uint8_t* to, std::int64_t count) {
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < count; ++i) to[i] = table.entries[bytes[i]];
}

#if defined(__AVX2__)
inline void look_up_by_16(const ByteTable& table, const std::uint8_t* bytes, std::uint8_t* to, std::int64_t count) {
  constexpr std::int64_t kVector = 32, kStep = 2 * kVector;
  const __m256i step = _mm256_set1_epi8(16), behind = _mm256_set1_epi8(0x70);
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i)),
            b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i + kVector));
    __m256i found_a = _mm256_setzero_si256(), found_b = found_a;
#pragma GCC unroll 16
    for (int part = 0; part < 16; ++part) {
      const __m256i entries =
          _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table.entries) + part));
      found_a = _mm256_or_si256(found_a, _mm256_shuffle_epi8(entries, _mm256_adds_epu8(a, behind)));
      found_b = _mm256_or_si256(found_b, _mm256_shuffle_epi8(entries, _mm256_adds_epu8(b, behind)));
      a = _mm256_sub_epi8(a, step), b = _mm256_sub_epi8(b, step);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), found_a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + kVector), found_b);
  }
  look_up_each(table, bytes + i, to + i, count - i);
}
#endif

#if defined(__AVX512BW__)
__attribute__((target("avx512vbmi"))) inline void look_up_by_128(const ByteTable& table, const std::uint8_t* bytes,
                                                                 std::uint8_t* to, std::int64_t count) {
  constexpr std::int64_t kVector = 64;
  const auto part = [&](int number) __attribute__((target("avx512vbmi"))) {
    return _mm512_load_si512(table.entries + number * kVector);
  };
  const __m512i first = part(0), second = part(1), third = part(2), fourth = part(3);
  const auto found = [&](__m512i places) __attribute__((target("avx512vbmi"))) {
    // Seven bits of a place choose among 128 entries.
    const __m512i low = _mm512_permutex2var_epi8(first, places, second),
                  high = _mm512_permutex2var_epi8(third, places, fourth);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(places), low, high);
  };
  std::int64_t i = 0;
  for (; i + kVector <= count; i += kVector) _mm512_storeu_si512(to + i, found(_mm512_loadu_si512(bytes + i)));
  if (i == count) return;
  const __mmask64 rest = (std::uint64_t{1} << (count - i)) - 1;
  _mm512_mask_storeu_epi8(to + i, rest, found(_mm512_maskz_loadu_epi8(rest, bytes + i)));
}
#endif

inline void look_up(const ByteTable& table, const std::uint8_t* bytes, std::uint8_t* to, std::int64_t count) {
#if defined(__AVX512BW__)
  if (__builtin_cpu_supports("avx512vbmi")) return look_up_by_128(table, bytes, to, count);
#endif
#if defined(__AVX2__)
  look_up_by_16(table, bytes, to, count);
#else
  look_up_each(table, bytes, to, count);
#endif
}

constexpr ByteTableKernels kKernels{&look_up};

}  // namespace
}  // namespace fermata
