// See stream_copy.h.
#include "codegen_cpu/eager/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/processor_model.h"

namespace fermata::eager {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;

/// Whole cache lines of the target: a line that is written in several stores may leave the processor in parts.
using StreamLines = void (*)(char* to, const char* from, std::size_t lines);

void stream_lines(char* to, const char* from, std::size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    auto* const out = reinterpret_cast<__m128i*>(to);
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a), _mm_stream_si128(out + 1, b), _mm_stream_si128(out + 2, c), _mm_stream_si128(out + 3, d);
  }
}
__attribute__((target("avx2"))) void stream_lines_avx2(char* to, const char* from, std::size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    auto* const out = reinterpret_cast<__m256i*>(to);
    const auto* const in = reinterpret_cast<const __m256i*>(from);
    const __m256i a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
    _mm256_stream_si256(out, a), _mm256_stream_si256(out + 1, b);
  }
}
__attribute__((target("avx512f"))) void stream_lines_avx512(char* to, const char* from, std::size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

StreamLines best_stream_lines() {
  if (permits_instructions("avx512") && __builtin_cpu_supports("avx512f")) return &stream_lines_avx512;
  if (permits_instructions("avx2") && __builtin_cpu_supports("avx2")) return &stream_lines_avx2;
  return &stream_lines;
}
#endif

}  // namespace

void stream_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  static const StreamLines best = best_stream_lines();
  auto* const out = static_cast<char*>(to);
  const auto* const in = static_cast<const char*>(from);
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine),
                    lines = (bytes - head) / kLine, end = head + lines * kLine;
  std::memcpy(out, in, head);
  best(out + head, in + head, lines);
  std::memcpy(out + end, in + end, bytes - end);
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace fermata::eager
