// See machine_limits.h. Functions are compiled for an instruction set each and picked by what the processor has.
#include "bench/machine_limits.h"

#include <cstring>

#include "runtime/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {
namespace {

void copy_memcpy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#if defined(__x86_64__)

__attribute__((target("avx2"))) void copy_avx2(void* to, const void* from, std::size_t bytes) {
  const auto* in = static_cast<const __m256i*>(from);
  auto* out = static_cast<__m256i*>(to);
  for (std::size_t i = 0; i < bytes / 32; i += 4) {
    const __m256i a = _mm256_load_si256(in + i), b = _mm256_load_si256(in + i + 1);
    const __m256i c = _mm256_load_si256(in + i + 2), d = _mm256_load_si256(in + i + 3);
    _mm256_store_si256(out + i, a), _mm256_store_si256(out + i + 1, b);
    _mm256_store_si256(out + i + 2, c), _mm256_store_si256(out + i + 3, d);
  }
}

__attribute__((target("avx2"))) void stream_avx2(void* to, const void* from, std::size_t bytes) {
  const auto* in = static_cast<const __m256i*>(from);
  auto* out = static_cast<__m256i*>(to);
  for (std::size_t i = 0; i < bytes / 32; i += 4) {
    const __m256i a = _mm256_load_si256(in + i), b = _mm256_load_si256(in + i + 1);
    const __m256i c = _mm256_load_si256(in + i + 2), d = _mm256_load_si256(in + i + 3);
    _mm256_stream_si256(out + i, a), _mm256_stream_si256(out + i + 1, b);
    _mm256_stream_si256(out + i + 2, c), _mm256_stream_si256(out + i + 3, d);
  }
  _mm_sfence();
}

__attribute__((target("avx512f"))) void stream_avx512(void* to, const void* from, std::size_t bytes) {
  const auto* in = static_cast<const __m512i*>(from);
  auto* out = static_cast<__m512i*>(to);
  for (std::size_t i = 0; i < bytes / 64; i += 4) {
    const __m512i a = _mm512_load_si512(in + i), b = _mm512_load_si512(in + i + 1);
    const __m512i c = _mm512_load_si512(in + i + 2), d = _mm512_load_si512(in + i + 3);
    _mm512_stream_si512(out + i, a), _mm512_stream_si512(out + i + 1, b);
    _mm512_stream_si512(out + i + 2, c), _mm512_stream_si512(out + i + 3, d);
  }
  _mm_sfence();
}

/// Latency 4 and two units a cycle need 8 chains; 12 leave room.
constexpr std::size_t kChains = 12;

__attribute__((target("avx512f"))) double fma_avx512(std::size_t rounds) {
  __m512 chain[kChains];
  for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(1e-3f);
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm512_fmadd_ps(chain[c], factor, term);
  __m512 sum = chain[0];
  for (std::size_t c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, chain[c]);
  const volatile float used = _mm512_cvtss_f32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kChains * 16 * 2;
}

__attribute__((target("avx2,fma"))) double fma_avx2(std::size_t rounds) {
  __m256 chain[kChains];
  for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(1e-3f);
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm256_fmadd_ps(chain[c], factor, term);
  __m256 sum = chain[0];
  for (std::size_t c = 1; c < kChains; ++c) sum = _mm256_add_ps(sum, chain[c]);
  const volatile float used = _mm256_cvtss_f32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kChains * 8 * 2;
}

#endif

double fma_portable(std::size_t rounds) {
  constexpr std::size_t kLanes = 32;
  float chain[kLanes];
  for (std::size_t c = 0; c < kLanes; ++c) chain[c] = static_cast<float>(c);
  for (std::size_t i = 0; i < rounds; ++i)
    for (float& c : chain) c = c * 0.999f + 1e-3f;
  float sum = 0;
  for (const float c : chain) sum += c;
  const volatile float used = sum;
  static_cast<void>(used);
  return static_cast<double>(rounds) * kLanes * 2;
}

}  // namespace

const std::vector<Copy>& copies() {
  static const std::vector<Copy> all = [] {
    std::vector<Copy> found{{"memcpy", &copy_memcpy}};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
      found.insert(found.end(), {{"plain", &copy_avx2}, {"non-temporal", &stream_avx2}});
    if (__builtin_cpu_supports("avx512f")) found.push_back({"non-temporal, 64 bytes", &stream_avx512});
#endif
    return found;
  }();
  return all;
}

void copy_on_threads(const Copy& copy, void* to, const void* from, std::size_t bytes, int threads) {
  constexpr std::size_t kPage = 4096;
  fermata::set_thread_count(threads);
  const double ns_per_page = 400;
  fermata::parallel_for(
      0, static_cast<std::int64_t>(bytes / kPage), ns_per_page, [&](std::int64_t begin, std::int64_t end) {
        const auto skip = static_cast<std::size_t>(begin) * kPage, part = static_cast<std::size_t>(end - begin) * kPage;
        copy.run(static_cast<std::byte*>(to) + skip, static_cast<const std::byte*>(from) + skip, part);
      });
}

double run_fma(std::size_t rounds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return fma_avx512(rounds);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return fma_avx2(rounds);
#endif
  return fma_portable(rounds);
}

}  // namespace bench
