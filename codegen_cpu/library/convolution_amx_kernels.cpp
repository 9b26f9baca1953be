// See convolution_amx_kernels.h. Everything here has internal linkage and nothing of the standard library is called: a
// function shared with other files could run there with instructions the machine lacks.
#include "codegen_cpu/library/convolution_amx_kernels.h"

#include "codegen_cpu/library/amx_split.h"
#include "codegen_cpu/library/matmul_amx_kernels.h"

namespace fermata {
namespace {

constexpr std::int64_t kPairs = kAmxChannels / 2;

std::uint32_t largest_of(__m512i most) {
  alignas(64) std::uint32_t lanes[16];
  _mm512_store_si512(lanes, most);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

std::uint32_t split_planes(const AmxSplitting& s) {
  __m512i most = _mm512_setzero_si512();
  for (std::int64_t pair = 0; pair < kPairs && pair < s.channels; ++pair) {
    const bool is_pair = pair + kPairs < s.channels;
    for (std::int64_t row = 0; row < s.rows; ++row) {
      const float* const from = s.from + pair * s.channel_stride + row * s.row_stride;
      std::uint32_t* const to = s.to + pair * s.to_plane + row * s.to_row;
      for (std::int64_t i = 0; i < s.columns; i += 16) {
        const std::int64_t left = s.columns - i;
        const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
        const __m512 a = _mm512_maskz_loadu_ps(mask, from + i),
                     b = is_pair ? _mm512_maskz_loadu_ps(mask, from + kPairs * s.channel_stride + i)
                                 : _mm512_setzero_ps();
        __m512i parts[3];
        split(a, b, parts, most);
        for (int part = 0; part < 3; ++part) _mm512_mask_storeu_epi32(to + part * s.to_part + i, mask, parts[part]);
      }
    }
  }
  return largest_of(most);
}

std::uint32_t pack_filters(const AmxFilters& f) {
  constexpr std::int64_t kStep = amx_step_bytes(AmxKind::f32), kPart = 2 * kAmxTileBytes;
  const std::int64_t blocks = (f.channels + kAmxChannels - 1) / kAmxChannels;
  const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32(static_cast<int>(f.channel_stride)),
                                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i most = _mm512_setzero_si512();
  for (std::int64_t filter = 0; filter < kAmxFilters; ++filter)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto mask_of = [&](std::int64_t first) {
        const std::int64_t left = filter < f.filters ? f.channels - block * kAmxChannels - first : 0;
        return static_cast<__mmask16>(left >= kPairs ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
      };
      const __mmask16 low = mask_of(0), high = mask_of(kPairs);
      const float* const from = f.from + filter * f.filter_stride + block * kAmxChannels * f.channel_stride;
      std::byte* const to = f.panel + block * kStep + filter * 64;
      for (std::int64_t tap = 0; tap < f.taps; ++tap) {
        const float* const at = from + (f.reversed ? f.taps - 1 - tap : tap);
        const __m512 zero = _mm512_setzero_ps(), a = _mm512_mask_i32gather_ps(zero, low, places, at, 4),
                     b = _mm512_mask_i32gather_ps(zero, high, places, at + kPairs * f.channel_stride, 4);
        __m512i parts[3];
        split(a, b, parts, most);
        for (int part = 0; part < 3; ++part) _mm512_store_si512(to + tap * blocks * kStep + part * kPart, parts[part]);
      }
    }
  return largest_of(most);
}

// Tile registers: 0 to 3 are sums, 4 and 5 the halves of the filters, 6 and 7 of the places.
[[gnu::always_inline]] inline void load_filters(const std::byte* from) {
  _tile_loadd(4, from, 64);
  _tile_loadd(5, from + kAmxTileBytes, 64);
}
[[gnu::always_inline]] inline void load_places(const std::byte* from, std::int64_t plane) {
  _tile_loadd(6, from, plane);
  _tile_loadd(7, from + 64, plane);
}
[[gnu::always_inline]] inline void dot() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

/// Some steps in tile registers, from zero: the small products first (docs/adr/017-f32-products-through-bf16.md).
void multiply_steps(const AmxWindows& w, std::int64_t first, std::int64_t end, float* product) {
  constexpr std::int64_t kPart = 2 * kAmxTileBytes, kStep = amx_step_bytes(AmxKind::f32);
  const std::int64_t plane = w.plane_bytes, part = w.part_bytes;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  asm volatile("" ::: "memory");  // the intrinsics do not say that they read memory
  for (std::int64_t step = first; step < end; ++step) {
    const std::byte *filters = w.weights + step * kStep, *places = w.planes + w.step_offsets[step];
    load_filters(filters + 2 * kPart), load_places(places, plane), dot();
    load_filters(filters + kPart), dot();
    load_places(places + part, plane), dot();
    load_filters(filters), dot();
    load_places(places + 2 * part, plane), dot();
  }
  for (std::int64_t step = first; step < end; ++step)
    load_filters(w.weights + step * kStep), load_places(w.planes + w.step_offsets[step], plane), dot();
  constexpr std::int64_t kRow = kAmxPlaces * 4;
  _tile_stored(0, product, kRow);
  _tile_stored(1, product + 16, kRow);
  _tile_stored(2, product + 16 * kAmxPlaces, kRow);
  _tile_stored(3, product + 16 * kAmxPlaces + 16, kRow);
}

void multiply(const AmxWindows& w) {
  alignas(64) float product[kAmxFilters * kAmxPlaces];
  for (std::int64_t step = 0; step < w.steps; step += kAmxStepsTogether) {
    const std::int64_t end = step + kAmxStepsTogether < w.steps ? step + kAmxStepsTogether : w.steps;
    multiply_steps(w, step, end, step == 0 ? w.sums : product);
    if (step == 0) continue;
    for (std::int64_t i = 0; i < kAmxFilters * kAmxPlaces; i += 16)
      _mm512_store_ps(w.sums + i, _mm512_add_ps(_mm512_load_ps(w.sums + i), _mm512_load_ps(product + i)));
  }
}

}  // namespace

constinit const AmxConvolutionKernels kAmxConvolutionKernels{&split_planes, &pack_filters, &multiply};

}  // namespace fermata
