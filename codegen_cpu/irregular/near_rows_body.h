// The body of near_rows_*.cpp.
//
// As many whole rows as fit are shuffled in one vector, and vectors are written over what the one before wrote behind
// its last row: all have the same shuffle.
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/near_rows.h"

namespace fermata {
namespace {

/// Bytes that are read, from the first element of the first row on.
struct Reach {
  std::int64_t low, high;
};
inline Reach reach_of(const NearRows& rows, std::int64_t count) {
  const std::int64_t along = (rows.length - 1) * rows.inner_step, across = (count - 1) * rows.step;
  return {((along < 0 ? along : 0) + (across < 0 ? across : 0)) * rows.element_bytes,
          ((along > 0 ? along : 0) + (across > 0 ? across : 0) + 1) * rows.element_bytes};
}

template <class T> void copy_one_by_one(const NearRows& rows, char* to, const char* from, std::int64_t count) {
  constexpr auto kElement = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; ++i, from += rows.step * kElement)
    for (std::int64_t j = 0; j < rows.length; ++j, to += kElement)
      __builtin_memcpy(to, from + j * rows.inner_step * kElement, sizeof(T));
}
inline void copy_elements(const NearRows& rows, char* to, const char* from, std::int64_t count) {
  switch (rows.element_bytes) {
    case 1: return copy_one_by_one<std::uint8_t>(rows, to, from, count);
    case 2: return copy_one_by_one<std::uint16_t>(rows, to, from, count);
    case 4: return copy_one_by_one<std::uint32_t>(rows, to, from, count);
    default: return copy_one_by_one<std::uint64_t>(rows, to, from, count);
  }
}

#if defined(__AVX2__)
/// Whether a vector holds as many rows, and what they are read from.
inline bool find_shuffle(NearRowsOrder& o, std::int64_t vector_bytes, std::int64_t fewest_rows) {
  const std::int64_t row = o.of.length * o.of.element_bytes, step = o.of.step * o.of.element_bytes;
  const std::int64_t inner = o.of.inner_step * o.of.element_bytes, apart = step < 0 ? -step : step;
  const Reach one = reach_of(o.of, 1);
  const std::int64_t free = vector_bytes - (one.high - one.low);
  if (free < 0 || row > vector_bytes) return false;
  const std::int64_t read = free / apart + 1, written = vector_bytes / row;
  o.rows = read < written ? read : written;
  if (o.rows < fewest_rows) return false;
  const Reach all = reach_of(o.of, o.rows);
  o.start = step > 0 ? all.low : all.high - vector_bytes;
  for (std::uint8_t& place : o.order) place = 0;
  for (std::int64_t i = 0; i < o.rows; ++i)
    for (std::int64_t j = 0; j < o.of.length; ++j)
      for (std::int64_t byte = 0; byte < o.of.element_bytes; ++byte)
        o.order[i * row + j * o.of.element_bytes + byte] =
            static_cast<std::uint8_t>(i * step + j * inner + byte - o.start);
  o.vector_bytes = vector_bytes;
  return true;
}

/// Rows up to which a whole vector can be read and written from the first of its rows on.
inline std::int64_t last_whole_vector(const NearRowsOrder& o, std::int64_t count) {
  const std::int64_t row = o.of.length * o.of.element_bytes, step = o.of.step * o.of.element_bytes;
  const Reach all = reach_of(o.of, count);
  const std::int64_t read = step > 0 ? all.high - o.vector_bytes - o.start : o.start - all.low;
  const std::int64_t written = count * row - o.vector_bytes;
  if (read < 0 || written < 0) return -1;
  const std::int64_t last_read = read / (step > 0 ? step : -step), last_written = written / row;
  return last_read < last_written ? last_read : last_written;
}

inline void copy_by_16(const NearRowsOrder& o, char* to, const char* from, std::int64_t count) {
  const std::int64_t row = o.of.length * o.of.element_bytes, step = o.of.step * o.of.element_bytes;
  const std::int64_t last = last_whole_vector(o, count);
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(o.order));
  std::int64_t i = 0;
  for (; i <= last; i += o.rows) {
    const __m128i read = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * step + o.start));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * row), _mm_shuffle_epi8(read, order));
  }
  copy_elements(o.of, to + i * row, from + i * step, count - i);
}
#endif

#if defined(__AVX512BW__)
#define FERMATA_VBMI __attribute__((target("avx512vbmi")))
/// Bytes `low` to `high` of a vector.
inline __mmask64 bytes_between(std::int64_t low, std::int64_t high) {
  const std::uint64_t below_high = high >= 64 ? ~std::uint64_t{0} : high <= 0 ? 0 : (std::uint64_t{1} << high) - 1;
  const std::uint64_t below_low = low <= 0 ? 0 : low >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << low) - 1;
  return below_high & ~below_low;
}
/// Without a mask, GCC 12 warns of what its own header leaves undefined.
FERMATA_VBMI inline __m512i shuffle_64(__m512i order, __m512i bytes) {
  return _mm512_maskz_permutexvar_epi8(~__mmask64{0}, order, bytes);
}
FERMATA_VBMI inline void copy_by_64(const NearRowsOrder& o, char* to, const char* from, std::int64_t count) {
  const std::int64_t row = o.of.length * o.of.element_bytes, step = o.of.step * o.of.element_bytes;
  const std::int64_t last = last_whole_vector(o, count);
  const __m512i order = _mm512_load_si512(o.order);
  std::int64_t i = 0;
  for (; i <= last; i += o.rows)
    _mm512_storeu_si512(to + i * row, shuffle_64(order, _mm512_loadu_si512(from + i * step + o.start)));
  const Reach all = reach_of(o.of, count);
  for (; i < count; i += o.rows) {
    const std::int64_t rows = count - i < o.rows ? count - i : o.rows, start = i * step + o.start;
    const __m512i read = _mm512_maskz_loadu_epi8(bytes_between(all.low - start, all.high - start), from + start);
    _mm512_mask_storeu_epi8(to + i * row, bytes_between(0, rows * row), shuffle_64(order, read));
  }
}
#endif

inline void find_order(NearRowsOrder& o, const NearRows& rows) {
  o.vector_bytes = 0, o.of = rows;
#if defined(__AVX2__)
  if (rows.step == 0 || rows.length < 1) return;
  // One row in a vector pays where its elements are moved, too.
  const std::int64_t fewest_rows = rows.inner_step == 1 ? 2 : 1;
#if defined(__AVX512BW__)
  if (__builtin_cpu_supports("avx512vbmi") && find_shuffle(o, 64, fewest_rows)) return;
#endif
  find_shuffle(o, 16, fewest_rows);
#endif
}

inline void copy(const NearRowsOrder& o, void* to, const void* from, std::int64_t count) {
  char* const target = static_cast<char*>(to);
  const char* const source = static_cast<const char*>(from);
#if defined(__AVX512BW__)
  if (o.vector_bytes == 64) return copy_by_64(o, target, source, count);
#endif
#if defined(__AVX2__)
  if (o.vector_bytes == 16) return copy_by_16(o, target, source, count);
#endif
  copy_elements(o.of, target, source, count);
}

constexpr NearRowsKernels kKernels{&find_order, &copy};

}  // namespace
}  // namespace fermata
