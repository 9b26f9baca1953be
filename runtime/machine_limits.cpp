// See machine_limits.h. Functions are compiled for an instruction set each and picked by what the processor has and,
// for multiply-adds, what FERMATA_CPU permits.
#include "runtime/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/processor_model.h"
#include "runtime/thread_pool.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fermata::machine {
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

/// Latency 4 and two units a cycle need 8 chains; 12 leave room. All loops over them are unrolled: an index would keep
/// them on the stack.
constexpr std::size_t kChains = 12;

__attribute__((target("avx512f"))) double fma_avx512(std::size_t rounds) {
  __m512 chain[kChains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(1e-3f);
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm512_fmadd_ps(chain[c], factor, term);
  __m512 sum = chain[0];
#pragma GCC unroll 12
  for (std::size_t c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, chain[c]);
  const volatile float used = _mm512_cvtss_f32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kChains * 16 * 2;
}

__attribute__((target("avx2,fma"))) double fma_avx2(std::size_t rounds) {
  __m256 chain[kChains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(1e-3f);
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm256_fmadd_ps(chain[c], factor, term);
  __m256 sum = chain[0];
#pragma GCC unroll 12
  for (std::size_t c = 1; c < kChains; ++c) sum = _mm256_add_ps(sum, chain[c]);
  const volatile float used = _mm256_cvtss_f32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kChains * 8 * 2;
}

/// Bytes widened to i16, multiplied and added in pairs. An instruction for four bytes (vpmaddubsw) saturates. Written
/// out, as compilers move products of constants out of the loop.
__attribute__((target("avx2"))) double pairs_int8(std::size_t rounds) {
  __m256i chain[kChains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm256_set1_epi32(static_cast<int>(c));
  const __m256i factor = _mm256_set1_epi16(3);
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) {
      __m256i product;
      asm("vpmaddwd %2, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(chain[c]), "=&x"(product) : "x"(factor));
    }
  __m256i sum = chain[0];
#pragma GCC unroll 12
  for (std::size_t c = 1; c < kChains; ++c) sum = _mm256_add_epi32(sum, chain[c]);
  const volatile int used = _mm256_cvtsi256_si32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kChains * 16 * 2;
}

/// Of an instruction with a latency of 6: there are as many registers.
constexpr std::size_t kPairChains = 20;

__attribute__((target("avx512bf16"))) double pairs_bf16(std::size_t rounds) {
  __m512 chain[kPairChains];
#pragma GCC unroll 20
  for (std::size_t c = 0; c < kPairChains; ++c) chain[c] = _mm512_set1_ps(static_cast<float>(c));
  __m512i halves = _mm512_set1_epi16(0x3f00);
  asm volatile("" : "+v"(halves));  // a constant would let products be computed by the compiler
  const auto factor = reinterpret_cast<__m512bh>(halves), other = factor;
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 20
    for (std::size_t c = 0; c < kPairChains; ++c) chain[c] = _mm512_dpbf16_ps(chain[c], factor, other);
  __m512 sum = chain[0];
#pragma GCC unroll 20
  for (std::size_t c = 1; c < kPairChains; ++c) sum = _mm512_add_ps(sum, chain[c]);
  const volatile float used = _mm512_cvtss_f32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kPairChains * 32 * 2;
}

__attribute__((target("avx512vnni"))) double quadruples_int8(std::size_t rounds) {
  __m512i chain[kChains];
#pragma GCC unroll 12
  for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm512_set1_epi32(static_cast<int>(c));
  __m512i factor = _mm512_set1_epi8(3);
  asm volatile("" : "+v"(factor));
  for (std::size_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (std::size_t c = 0; c < kChains; ++c) chain[c] = _mm512_dpbusd_epi32(chain[c], factor, factor);
  __m512i sum = chain[0];
#pragma GCC unroll 12
  for (std::size_t c = 1; c < kChains; ++c) sum = _mm512_add_epi32(sum, chain[c]);
  const volatile int used = _mm512_cvtsi512_si32(sum);
  static_cast<void>(used);
  return static_cast<double>(rounds) * kChains * 64 * 2;
}

/// Whether the processor has tiles and the system lets this process use them (Linux asks to be asked).
bool has_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2): ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  constexpr unsigned kTilesOfBothDTypes = 1u << 22 | 1u << 24 | 1u << 25;
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTilesOfBothDTypes) == kTilesOfBothDTypes &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr TileConfiguration kTiles;

// Four products with four sums, as a kernel does them; a product has 16 x 16 x 64 bytes.
__attribute__((target("amx-tile,amx-bf16"))) double tiles_bf16(std::size_t rounds) {
  _tile_loadconfig(&kTiles);
  for (std::size_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}
__attribute__((target("amx-tile,amx-int8"))) double tiles_int8(std::size_t rounds) {
  _tile_loadconfig(&kTiles);
  for (std::size_t i = 0; i < rounds; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(rounds) * 4 * 16 * 16 * 64 * 2;
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
  static const auto& all = *new std::vector<Copy>([] {
    std::vector<Copy> found{{"memcpy", &copy_memcpy}};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
      found.insert(found.end(), {{"plain", &copy_avx2}, {"non-temporal", &stream_avx2}});
    if (__builtin_cpu_supports("avx512f")) found.push_back({"non-temporal, 64 bytes", &stream_avx512});
#endif
    return found;
  }());
  return all;
}

void copy_on_threads(const Copy& copy, void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const double ns_per_page = 400;
  parallel_for(0, static_cast<std::int64_t>(bytes / kPage), ns_per_page, [&](std::int64_t begin, std::int64_t end) {
    const auto skip = static_cast<std::size_t>(begin) * kPage, part = static_cast<std::size_t>(end - begin) * kPage;
    copy.run(static_cast<std::byte*>(to) + skip, static_cast<const std::byte*>(from) + skip, part);
  });
}

const std::vector<Peak>& peaks() {
  static const auto& all = *new std::vector<Peak>([] {
    Peak f32{"fma_peak", "scalars", &fma_portable}, bf16, int8;
#if defined(__x86_64__)
    const bool avx2 = permits_instructions("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && permits_instructions("avx512") && __builtin_cpu_supports("avx512f");
    if (avx2) f32 = {"fma_peak", "AVX2", &fma_avx2};
    if (avx512) f32 = {"fma_peak", "AVX-512", &fma_avx512};
#endif
    bf16 = int8 = f32, bf16.name = "bf16_peak", int8.name = "int8_peak";
#if defined(__x86_64__)
    const auto choose = [](Peak& peak, std::string_view instructions, double (*run)(std::size_t)) {
      peak.instructions = instructions, peak.run = run;
    };
    if (avx2 && !avx512) choose(int8, "AVX2, pairs", &pairs_int8);
    if (avx512 && __builtin_cpu_supports("avx512bf16")) choose(bf16, "AVX-512 BF16", &pairs_bf16);
    if (avx512 && __builtin_cpu_supports("avx512vnni")) choose(int8, "AVX-512 VNNI", &quadruples_int8);
    if (avx512 && permits_instructions("amx") && has_tiles())
      choose(bf16, "AMX", &tiles_bf16), choose(int8, "AMX", &tiles_int8);
#endif
    return std::vector<Peak>{f32, bf16, int8};
  }());
  return all;
}

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The shortest of some runs: other load on the machine only ever adds.
template <class Run> double shortest(Run&& run) {
  double best = 1e9;
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || (seconds_since(begin) < 4e-3 && i < 1000); ++i) {
    const auto start = Clock::now();
    run();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

double copy_rate(std::size_t bytes, std::byte* to, std::byte* from) {
  double best = 1e9;
  for (const Copy& copy : copies()) best = std::min(best, shortest([&] { copy_on_threads(copy, to, from, bytes); }));
  return 2 * static_cast<double>(bytes) / std::max(best, 1e-9);
}

Limits measure() {
  Limits found;
  constexpr std::size_t kLargest = std::size_t{32} << 20;
  const Allocation to = allocate_bytes(kLargest), from = allocate_bytes(kLargest);
  std::memset(to.data, 1, kLargest), std::memset(from.data, 1, kLargest);
  for (std::size_t bytes = std::size_t{16} << 10; bytes <= kLargest; bytes *= 8) {
    const std::size_t taken = bytes * 8 > kLargest ? kLargest : bytes;
    found.copy.push_back({2 * static_cast<double>(taken),
                          copy_rate(taken, static_cast<std::byte*>(to.data), static_cast<std::byte*>(from.data))});
  }
  release_bytes(to), release_bytes(from);
  const auto rate = [](const Peak& peak) {
    double operations = 0;
    const double seconds = shortest([&] { operations = peak.run(20'000); });
    return operations / seconds * thread_count();
  };
  found.f32 = rate(peaks()[0]), found.bf16 = rate(peaks()[1]), found.int8 = rate(peaks()[2]);
  return found;
}

}  // namespace

const Limits& limits() {
  static const auto& found = *new Limits(measure());
  return found;
}

double Limits::bytes_per_second(double working_set) const {
  if (working_set <= copy.front().bytes) return copy.front().bytes_per_second;
  for (std::size_t i = 1; i < copy.size(); ++i) {
    const Rate &a = copy[i - 1], &b = copy[i];
    if (working_set > b.bytes) continue;
    const double part = std::log(working_set / a.bytes) / std::log(b.bytes / a.bytes);
    return a.bytes_per_second + part * (b.bytes_per_second - a.bytes_per_second);
  }
  return copy.back().bytes_per_second;
}

double Limits::least_ns(double bytes, double operations, DType dtype) const {
  // Products of f32 may be made of three of bf16 (docs/adr/017).
  const double peak = byte_size(dtype) == 1   ? int8
                      : byte_size(dtype) == 2 ? bf16
                      : byte_size(dtype) == 8 ? f32 / 2
                                              : std::max(f32, bf16 / 3);
  return 1e9 * std::max(bytes / bytes_per_second(bytes), operations / peak);
}

}  // namespace fermata::machine
