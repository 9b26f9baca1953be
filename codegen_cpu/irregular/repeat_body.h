// The body of repeat_*.cpp.
//
// Each vector of the target is a shuffle of 16 bytes of the source, or of as many for each half of it.
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/repeat.h"

namespace fermata {
namespace {

constexpr std::int64_t kWindow = 16;
constexpr std::int64_t kFewestGroups = 16;  // fewer take less than finding the places does

/// Whether all elements of each part lie in one window of the source; then their places in it.
inline bool find_places(RepeatOrder& o, std::int64_t element, std::int64_t step, std::int64_t times) {
  const std::int64_t part = o.vector_bytes / o.parts;
  std::int64_t source = 0, repeated = 0, window = 0;
  o.reach = 0;
  for (std::int64_t p = 0; p < times * o.parts; ++p) {
    window = source;
    o.from[p] = static_cast<std::int32_t>(window), o.reach = window + kWindow;
    std::uint8_t* to = o.order + p * part;
    for (std::int64_t i = 0; i < part; i += element, to += element) {
      if (source - window + element > kWindow) return false;
      for (std::int64_t byte = 0; byte < element; ++byte) to[byte] = static_cast<std::uint8_t>(source - window + byte);
      if (++repeated == times) repeated = 0, source += step * element;
    }
  }
  return o.reach <= RepeatOrder::kMostReach;
}

inline void find_order([[maybe_unused]] RepeatOrder& o, [[maybe_unused]] std::int64_t element,
                       [[maybe_unused]] std::int64_t step, [[maybe_unused]] std::int64_t times,
                       [[maybe_unused]] std::int64_t count) {
  o.vector_bytes = 0;
#if defined(__AVX2__)
  constexpr std::int64_t kFarthest = 4096;  // apart: beyond, no two lie in one window
  if (step < 1 || step > kFarthest || times < 2 || times * element > RepeatOrder::kMostBytes) return;
  const auto is_found = [&](std::int64_t vector_bytes, std::int64_t parts) {
    if (count < kFewestGroups * (vector_bytes / element)) return false;
    o.vector_bytes = vector_bytes, o.parts = parts;
    return find_places(o, element, step, times);
  };
#if defined(__AVX512BW__)
  if (is_found(64, 1)) return;
#endif
  if (!is_found(32, 1) && !is_found(32, 2)) o.vector_bytes = 0;
#endif
}

#if defined(__AVX2__)
inline __m128i window_at(const char* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

template <std::int64_t kVector, std::int64_t kParts>
inline void write_vector(const RepeatOrder& o, std::int64_t i, char* to, const char* from) {
  const std::int32_t* const at = o.from + i * kParts;
  const std::uint8_t* const order = o.order + i * kVector;
#if defined(__AVX512BW__)
  if constexpr (kVector == 64) {
    // Without a mask, GCC 12 warns of what its own header leaves undefined.
    const __m512i window = _mm512_maskz_broadcast_i32x4(0xffff, window_at(from + at[0]));
    _mm512_storeu_si512(to, _mm512_shuffle_epi8(window, _mm512_load_si512(order)));
    return;
  }
#endif
  __m256i windows;
  if constexpr (kParts == 1)
    windows = _mm256_broadcastsi128_si256(window_at(from + at[0]));
  else
    windows = _mm256_set_m128i(window_at(from + at[1]), window_at(from + at[0]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_shuffle_epi8(windows, _mm256_load_si256(reinterpret_cast<const __m256i*>(order))));
}

/// Nothing behind the last element is read or written: the last groups are read from a copy.
template <std::int64_t kVector, std::int64_t kParts>
void write_groups(const RepeatOrder& o, std::int64_t element, const RepeatedElements& r) {
  const std::int64_t step = r.step * element, group = kVector / element * step;
  char* to = static_cast<char*>(r.to);
  char* const end = to + r.count * r.times * element;
  const char* from = static_cast<const char*>(r.from);
  const char* const from_end = from + (r.count - 1) * step + element;
  const std::int64_t times = r.times, reach = o.reach;
  for (; from_end - from >= reach; from += group, to += times * kVector) {
    std::int64_t i = 0;
    for (; i + 2 <= times; i += 2) {
      write_vector<kVector, kParts>(o, i, to + i * kVector, from);
      write_vector<kVector, kParts>(o, i + 1, to + (i + 1) * kVector, from);
    }
    if (i < times) write_vector<kVector, kParts>(o, i, to + i * kVector, from);
  }
  alignas(64) char rest[RepeatOrder::kMostReach], vector[kVector];
  for (; to < end; from += group) {
    __builtin_memcpy(rest, from, static_cast<std::size_t>(from_end - from < reach ? from_end - from : reach));
    for (std::int64_t i = 0; i < times && to < end; ++i, to += kVector) {
      const bool is_whole = end - to >= kVector;
      write_vector<kVector, kParts>(o, i, is_whole ? to : vector, rest);
      if (!is_whole) __builtin_memcpy(to, vector, static_cast<std::size_t>(end - to));
    }
  }
}
#endif

/// A line of the same element, in vectors.
template <class T> void fill_line(T* to, T element, std::int64_t times) {
  constexpr int kLine = 16 / static_cast<int>(sizeof(T));
  typedef T Line __attribute__((vector_size(16)));
  const Line line = Line{} + element;
  std::int64_t j = 0;
  for (; j + kLine <= times; j += kLine) __builtin_memcpy(to + j, &line, sizeof(line));
  for (; j < times; ++j) to[j] = element;
}

template <class T> void repeat_one_by_one(const RepeatedElements& r) {
  for (std::int64_t i = 0; i < r.count; ++i)
    fill_line(static_cast<T*>(r.to) + i * r.times, static_cast<const T*>(r.from)[i * r.step], r.times);
}

inline void repeat([[maybe_unused]] const RepeatOrder* o, std::int64_t element, const RepeatedElements& r) {
#if defined(__AVX512BW__)
  if (o != nullptr && o->vector_bytes == 64) return write_groups<64, 1>(*o, element, r);
#endif
#if defined(__AVX2__)
  if (o != nullptr && o->vector_bytes == 32)
    return o->parts == 1 ? write_groups<32, 1>(*o, element, r) : write_groups<32, 2>(*o, element, r);
#endif
  switch (element) {
    case 1: return repeat_one_by_one<std::uint8_t>(r);
    case 2: return repeat_one_by_one<std::uint16_t>(r);
    case 4: return repeat_one_by_one<std::uint32_t>(r);
    default: return repeat_one_by_one<std::uint64_t>(r);
  }
}

constexpr RepeatKernels kKernels{&find_order, &repeat};

}  // namespace
}  // namespace fermata
