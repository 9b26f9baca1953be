// See gather_speed.h.
#include "codegen_cpu/gather_speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "codegen_cpu/code_target.h"

namespace fermata {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kElements = 2048, kLanes = 16;  // in the first-level cache
using Elements = std::array<float, kElements>;
using Places = std::array<std::int32_t, kElements>;

__attribute__((target("avx512f"))) float sum_of_gathers(const Elements& elements, const Places& places) {
  __m512 sum = _mm512_setzero_ps();
  const __m512 none = sum;
  for (std::size_t i = 0; i < kElements; i += kLanes) {
    const __m512i at = _mm512_loadu_si512(places.data() + i);
    sum = _mm512_add_ps(sum, _mm512_mask_i32gather_ps(none, __mmask16{0xffff}, at, elements.data(), 4));
  }
  return _mm512_cvtss_f32(sum);
}

/// As compiled kernels do: places lie in memory, and elements are put together in registers.
__attribute__((target("avx512f"))) float sum_of_loads(const Elements& elements, const Places& places) {
  __m512 sum = _mm512_setzero_ps();
  for (std::size_t i = 0; i < kElements; i += kLanes) {
    const std::int32_t* const at = places.data() + i;
    const auto four = [&](int first) __attribute__((target("avx512f"))) {
      const float* const e = elements.data();
      return _mm_setr_ps(e[at[first]], e[at[first + 1]], e[at[first + 2]], e[at[first + 3]]);
    };
    const __m256 low = _mm256_setr_m128(four(0), four(4)), high = _mm256_setr_m128(four(8), four(12));
    const __m512d both = _mm512_mask_broadcast_f64x4(_mm512_castpd256_pd512(_mm256_castps_pd(low)), __mmask8{0xf0},
                                                     _mm256_castps_pd(high));
    sum = _mm512_add_ps(sum, _mm512_castpd_ps(both));
  }
  return _mm512_cvtss_f32(sum);
}

bool measure() {
  if (!processor_runs("avx512")) return false;
  Elements elements{};
  Places places;
  std::uint32_t random = 1;
  for (std::int32_t& place : places) {
    random = random * 1664525 + 1013904223;
    place = static_cast<std::int32_t>(random >> 8) % static_cast<std::int32_t>(kElements);
  }
  using Clock = std::chrono::steady_clock;
  constexpr int kTimes = 6;
  auto of_gathers = Clock::duration::max(), of_loads = of_gathers;
  volatile float kept = 0;
  for (int time = 0; time < kTimes; ++time) {
    const auto begin = Clock::now();
    kept = sum_of_gathers(elements, places);
    const auto middle = Clock::now();
    kept = sum_of_loads(elements, places);
    of_gathers = std::min(of_gathers, middle - begin), of_loads = std::min(of_loads, Clock::now() - middle);
  }
  static_cast<void>(kept);
  return of_gathers < of_loads;
}
#else
bool measure() { return false; }
#endif

}  // namespace

bool gathers_are_fast() {
  static const bool are_fast = measure();
  return are_fast;
}

}  // namespace fermata
