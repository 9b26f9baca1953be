// See matmul_amx_kernels.h. Everything here has internal linkage and nothing of the standard library is called: a function
// shared with other files could run there with instructions the machine lacks.
#include "codegen_cpu/library/matmul_amx_kernels.h"

#include <immintrin.h>

namespace fermata {
namespace {

constexpr std::int64_t kHalf = 16;  // lines of a tile, and its groups of 32 bit along k

// ---- Packing ----------------------------------------------------------------------------------------------------------

__mmask64 first_lanes(std::int64_t count) {
  return count <= 0 ? 0 : count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}
__m512i magnitude(__m512 x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }
__m512i low_half(__m256i x) { return _mm512_cvtepu16_epi32(x); }
__m512i high_half(__m256i x) { return _mm512_slli_epi32(low_half(x), 16); }
__m512 widened(__m256i x) { return _mm512_castsi512_ps(high_half(x)); }
__m256i bits(__m256bh x) {
  __m256i v;
  __builtin_memcpy(&v, &x, sizeof v);
  return v;
}

/// How elements of a kind are brought into 32-bit groups of k. along_k: a line's elements [0, count) as 16 groups;
/// along_lines: 16 lines' elements of one group, of which `count` places of k exist. `most` joins magnitudes.
template <AmxKind> struct Elements {  // bytes
  using Element = std::uint8_t;
  static void along_k(const Element* from, std::int64_t count, __m512i* to, __m512i&) {
    to[0] = _mm512_maskz_loadu_epi8(first_lanes(count), from);
  }
  static void along_lines(const Element* from, std::int64_t k_stride, std::int64_t count, __mmask16 lines, __m512i* to,
                          __m512i&) {
    __m512i all = _mm512_setzero_si512();
    for (int i = 0; i < 4 && i < count; ++i) {
      const __m512i row = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lines, from + i * k_stride));
      all = _mm512_or_si512(all, _mm512_slli_epi32(row, static_cast<unsigned>(8 * i)));
    }
    to[0] = all;
  }
};
template <> struct Elements<AmxKind::bf16> {
  using Element = std::uint16_t;
  static void along_k(const Element* from, std::int64_t count, __m512i* to, __m512i&) {
    to[0] = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(first_lanes(count)), from);
  }
  static void along_lines(const Element* from, std::int64_t k_stride, std::int64_t count, __mmask16 lines, __m512i* to,
                          __m512i&) {
    const __m256i second = count > 1 ? _mm256_maskz_loadu_epi16(lines, from + k_stride) : _mm256_setzero_si256();
    to[0] = _mm512_or_si512(low_half(_mm256_maskz_loadu_epi16(lines, from)), high_half(second));
  }
};
/// x = x1 + x2 + x3, each the nearest bf16 to what the earlier ones leave.
template <> struct Elements<AmxKind::f32> {
  using Element = float;
  static void along_k(const Element* from, std::int64_t count, __m512i* to, __m512i& most) {
    const auto mask = static_cast<std::uint32_t>(first_lanes(count));
    __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from),
           b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + kHalf);
    most = _mm512_max_epu32(most, _mm512_max_epu32(magnitude(a), magnitude(b)));
    for (int part = 0; part < 3; ++part) {
      const __m256i first = bits(_mm512_cvtneps_pbh(a)), second = bits(_mm512_cvtneps_pbh(b));
      to[part] = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
      a = _mm512_sub_ps(a, widened(first)), b = _mm512_sub_ps(b, widened(second));
    }
  }
  static void along_lines(const Element* from, std::int64_t k_stride, std::int64_t count, __mmask16 lines, __m512i* to,
                          __m512i& most) {
    __m512 a = _mm512_maskz_loadu_ps(lines, from),
           b = count > 1 ? _mm512_maskz_loadu_ps(lines, from + k_stride) : _mm512_setzero_ps();
    most = _mm512_max_epu32(most, _mm512_max_epu32(magnitude(a), magnitude(b)));
    for (int part = 0; part < 3; ++part) {
      const __m512i first = high_half(bits(_mm512_cvtneps_pbh(a))), second = high_half(bits(_mm512_cvtneps_pbh(b)));
      to[part] = _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
      a = _mm512_sub_ps(a, _mm512_castsi512_ps(first)), b = _mm512_sub_ps(b, _mm512_castsi512_ps(second));
    }
  }
};

/// Lane numbers by which two rows that differ in a bit of their number exchange the lanes that have that bit.
struct Exchange {
  alignas(64) int lower[16], upper[16];
  constexpr explicit Exchange(int bit) : lower(), upper() {
    for (int i = 0; i < 16; ++i) lower[i] = (i & bit) ? 16 + i - bit : i, upper[i] = (i & bit) ? 16 + i : i + bit;
  }
};
constexpr Exchange kExchanges[] = {Exchange(8), Exchange(4), Exchange(2), Exchange(1)};

void transpose(__m512i* rows) {
  int bit = 8;
  for (const Exchange& e : kExchanges) {
    const __m512i lower = _mm512_load_si512(e.lower), upper = _mm512_load_si512(e.upper);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i & bit) continue;
      const __m512i a = rows[i], b = rows[i + bit];
      rows[i] = _mm512_permutex2var_epi32(a, lower, b), rows[i + bit] = _mm512_permutex2var_epi32(a, upper, b);
    }
    bit /= 2;
  }
}

/// One step of up to 16 lines, the half of a panel. Tiles of the left side have lines as rows, of the right as columns.
template <AmxKind kKind, bool kRight, bool kAlongLines>
[[gnu::always_inline]] inline void pack_half(const typename Elements<kKind>::Element* from, std::int64_t line_stride,
                                             std::int64_t k_stride, std::int64_t lines, std::int64_t count,
                                             std::byte* to, __m512i* most) {
  using E = typename Elements<kKind>::Element;
  constexpr std::int64_t kStep = amx_step(kKind), kGroup = kStep / kHalf, kParts = amx_parts(kKind);
  __m512i tiles[kParts][kHalf];
  for (std::int64_t i = 0; i < kHalf; ++i) {
    __m512i parts[kParts];
    if constexpr (kAlongLines) {
      const auto mask = i * kGroup < count ? static_cast<__mmask16>(first_lanes(lines)) : __mmask16{0};
      Elements<kKind>::along_lines(from + i * kGroup * k_stride, k_stride, count - i * kGroup, mask, parts, most[0]);
    } else {
      const E* line = from + i * line_stride;
      E gathered[kStep];
      if (k_stride != 1 && i < lines) {
        for (std::int64_t k = 0; k < count; ++k) gathered[k] = line[k * k_stride];
        line = gathered;
      }
      Elements<kKind>::along_k(line, i < lines ? count : 0, parts, most[i]);
    }
    for (std::int64_t part = 0; part < kParts; ++part) tiles[part][i] = parts[part];
  }
  for (std::int64_t part = 0; part < kParts; ++part) {
    if constexpr (kAlongLines != kRight) transpose(tiles[part]);
    for (std::int64_t i = 0; i < kHalf; ++i) _mm512_store_si512(to + part * 2 * kAmxTileBytes + i * 64, tiles[part][i]);
  }
}

/// Goes through memory in its order: line after line, or all lines of one step after another.
template <AmxKind kKind, bool kRight> void pack(const AmxPacking& p) {
  constexpr std::int64_t kStep = amx_step(kKind);
  const auto* const from = static_cast<const typename Elements<kKind>::Element*>(p.from);
  const auto half_of = [&](std::int64_t line) {
    return p.panels + line / kAmxLines * p.panel_bytes + line % kAmxLines / kHalf * kAmxTileBytes;
  };
  const auto least = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  if (p.line_stride == 1 && p.k_stride != 1) {
    for (std::int64_t k = 0, step = 0; k < p.k; k += kStep, ++step)
      for (std::int64_t line = 0; line < p.lines; line += kHalf) {
        const std::int64_t lines = least(kHalf, p.lines - line);
        const auto mask = static_cast<__mmask16>(first_lanes(lines));
        __m512i most = _mm512_setzero_si512();
        if (p.largest != nullptr) most = _mm512_maskz_loadu_epi32(mask, p.largest + line);
        pack_half<kKind, kRight, true>(from + line + k * p.k_stride, 1, p.k_stride, lines, least(kStep, p.k - k),
                                       half_of(line) + step * amx_step_bytes(kKind), &most);
        if (p.largest != nullptr) _mm512_mask_storeu_epi32(p.largest + line, mask, most);
      }
    return;
  }
  for (std::int64_t line = 0; line < p.lines; line += kHalf) {
    const std::int64_t lines = least(kHalf, p.lines - line);
    __m512i most[kHalf];
    for (__m512i& m : most) m = _mm512_setzero_si512();
    for (std::int64_t k = 0, step = 0; k < p.k; k += kStep, ++step)
      pack_half<kKind, kRight, false>(from + line * p.line_stride + k * p.k_stride, p.line_stride, p.k_stride, lines,
                                      least(kStep, p.k - k), half_of(line) + step * amx_step_bytes(kKind), most);
    for (std::int64_t i = 0; p.largest != nullptr && i < lines; ++i) {
      const std::uint32_t m = _mm512_reduce_max_epu32(most[i]);
      if (m > p.largest[line + i]) p.largest[line + i] = m;
    }
  }
}

// ---- Products ---------------------------------------------------------------------------------------------------------

struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfiguration kConfiguration;  // not on the stack: the intrinsic does not say how much it reads

void configure() { _tile_loadconfig(&kConfiguration); }
void release() { _tile_release(); }

// Tile registers: 0 to 3 are sums (upper left, upper right, lower left, lower right), 4 and 5 the halves of the left side,
// 6 and 7 of the right. The intrinsics take numbers only.
#define FERMATA_DOT(sums, lhs, rhs)                                \
  {                                                                \
    if constexpr (kKind == AmxKind::bf16 || kKind == AmxKind::f32) \
      _tile_dpbf16ps(sums, lhs, rhs);                              \
    else if constexpr (kKind == AmxKind::i8_i8)                    \
      _tile_dpbssd(sums, lhs, rhs);                                \
    else if constexpr (kKind == AmxKind::i8_u8)                    \
      _tile_dpbsud(sums, lhs, rhs);                                \
    else if constexpr (kKind == AmxKind::u8_i8)                    \
      _tile_dpbusd(sums, lhs, rhs);                                \
    else                                                           \
      _tile_dpbuud(sums, lhs, rhs);                                \
  }

template <AmxKind kKind, bool kLower, bool kRight> [[gnu::always_inline]] inline void dot() {
  FERMATA_DOT(0, 4, 6)
  if constexpr (kRight) FERMATA_DOT(1, 4, 7)
  if constexpr (kLower) FERMATA_DOT(2, 5, 6)
  if constexpr (kLower && kRight) FERMATA_DOT(3, 5, 7)
}
template <bool kLower> [[gnu::always_inline]] inline void load_lhs(const std::byte* from) {
  _tile_loadd(4, from, 64);
  if constexpr (kLower) _tile_loadd(5, from + kAmxTileBytes, 64);
}
template <bool kRight>
[[gnu::always_inline]] inline void load_rhs(const std::byte* from, std::int64_t half, std::int64_t line) {
  _tile_loadd(6, from, line);
  if constexpr (kRight) _tile_loadd(7, from + half, line);
}

/// bf16 nearest to x; a NaN stays one.
__m256i narrowed(__m512 x) { return bits(_mm512_cvtneps_pbh(x)); }

constexpr std::int64_t kRow = kAmxLines * 4;  // bytes of a row of sums

/// A product of two panels that has left the tile registers: its rows are added to the sums, and go to the result if they are
/// finished, while the next product is computed.
template <AmxKind kKind> struct Leaving {
  const std::byte* product = nullptr;
  std::byte *sums, *out;
  std::int64_t rows = 0, columns, out_row, out_bytes;
  bool first;

  [[gnu::always_inline]] inline void finish(std::int64_t count) {
    for (; count > 0 && rows > 0; --count, --rows) {
      finish_row();
      product += kRow, sums += kRow;
      if (out != nullptr) out += out_row;
    }
  }

 private:
  [[gnu::always_inline]] inline void finish_row() const {
    for (std::int64_t j = 0; j < columns; j += kHalf) {
      __m512i x = _mm512_load_si512(product + j * 4);
      if (!first) {
        const __m512i before = _mm512_load_si512(sums + j * 4);
        if constexpr (kKind == AmxKind::bf16 || kKind == AmxKind::f32)
          x = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(before), _mm512_castsi512_ps(x)));
        else
          x = _mm512_add_epi32(before, x);
      }
      if (out == nullptr) {
        _mm512_store_si512(sums + j * 4, x);
        continue;
      }
      const auto mask = static_cast<__mmask16>(first_lanes(columns - j));
      if (out_bytes == 4)
        _mm512_mask_storeu_epi32(out + j * 4, mask, x);
      else if (out_bytes == 2)
        _mm256_mask_storeu_epi16(out + j * 2, mask, narrowed(_mm512_castsi512_ps(x)));
      else
        _mm512_mask_cvtepi32_storeu_epi8(out + j, mask, x);
    }
  }
};

/// Two panels' product over some steps, stored as 32 rows. Meanwhile what is leaving goes, and a part of the right side to come
/// is fetched into the second-level cache, and the rows of the result that this goes to into the first.
template <AmxKind kKind, bool kLower, bool kRight>
void multiply_panels(const std::byte* lhs, const std::byte* rhs, const AmxProduct& p, std::int64_t steps,
                     Leaving<kKind>& leaving, const std::byte* ahead, std::int64_t ahead_lines, const std::byte* out,
                     std::byte* to) {
  const std::int64_t half = p.rhs_half, line = p.rhs_line, rows_each = (kAmxLines + steps - 1) / steps;
  _tile_zero(0);
  if constexpr (kRight) _tile_zero(1);
  if constexpr (kLower) _tile_zero(2);
  if constexpr (kLower && kRight) _tile_zero(3);
  asm volatile("" ::: "memory");  // the intrinsics do not say that they read memory
  for (std::int64_t step = 0; step < steps; ++step, lhs += amx_step_bytes(kKind), rhs += p.rhs_step) {
    for (std::int64_t i = 0; i < ahead_lines; ++i, ahead += 64) __builtin_prefetch(ahead, 0, 2);
    if constexpr (kKind != AmxKind::f32) {
      load_lhs<kLower>(lhs), load_rhs<kRight>(rhs, half, line);
      dot<kKind, kLower, kRight>();
    } else {
      // a3 b1, a2 b1, a2 b2, a1 b2, a1 b3, a1 b1: each changes one side, and the largest is added last. a2 b3, a3 b2 and a3 b3
      // are below 2^-25 of the whole.
      constexpr std::int64_t kPart = 2 * kAmxTileBytes;
      load_lhs<kLower>(lhs + 2 * kPart), load_rhs<kRight>(rhs, half, line), dot<kKind, kLower, kRight>();
      load_lhs<kLower>(lhs + kPart), dot<kKind, kLower, kRight>();
      load_rhs<kRight>(rhs + kPart, half, line), dot<kKind, kLower, kRight>();
      load_lhs<kLower>(lhs), dot<kKind, kLower, kRight>();
      load_rhs<kRight>(rhs + 2 * kPart, half, line), dot<kKind, kLower, kRight>();
      load_rhs<kRight>(rhs, half, line), dot<kKind, kLower, kRight>();
    }
    leaving.finish(rows_each);
    for (std::int64_t i = 0; out != nullptr && i < rows_each; ++i, out += p.out_row)
      __builtin_prefetch(out, 1), __builtin_prefetch(out + (p.columns - 1) * p.out_bytes, 1);
  }
  _tile_stored(0, to, kRow);
  if constexpr (kRight) _tile_stored(1, to + 64, kRow);
  if constexpr (kLower) _tile_stored(2, to + 16 * kRow, kRow);
  if constexpr (kLower && kRight) _tile_stored(3, to + 16 * kRow + 64, kRow);
}

template <AmxKind kKind> void multiply(const AmxProduct& p) {
  alignas(64) std::byte products[2][kAmxLines * kRow];
  const bool right = p.columns > kHalf;
  const std::int64_t panels = (p.rows + kAmxLines - 1) / kAmxLines;
  const std::byte *lhs_block = p.lhs, *rhs = p.rhs;
  Leaving<kKind> leaving;
  int turn = 0;
  for (std::int64_t step = 0; step < p.steps; step += kAmxStepsTogether) {
    const std::int64_t steps = p.steps - step < kAmxStepsTogether ? p.steps - step : kAmxStepsTogether;
    const std::byte* lhs = lhs_block;
    const std::byte* ahead = rhs + kAmxStepsTogether * p.rhs_step;
    const std::int64_t ahead_lines = p.rhs_step / 64 / panels;
    for (std::int64_t i = 0; i < p.rows; i += kAmxLines, lhs += p.lhs_panel_bytes) {
      const std::int64_t rows = p.rows - i < kAmxLines ? p.rows - i : kAmxLines;
      const auto kernel = rows > kHalf
                              ? right ? &multiply_panels<kKind, true, true> : &multiply_panels<kKind, true, false>
                          : right ? &multiply_panels<kKind, false, true>
                                  : &multiply_panels<kKind, false, false>;
      std::byte* const out =
          p.out == nullptr || step + steps < p.steps ? nullptr : static_cast<std::byte*>(p.out) + i * p.out_row;
      kernel(lhs, rhs, p, steps, leaving, ahead, ahead_lines, rows < kAmxLines ? nullptr : out, products[turn]);
      ahead += ahead_lines * 64 * steps;
      leaving.product = products[turn], turn = 1 - turn;
      leaving.sums = static_cast<std::byte*>(p.sums) + i * kRow;
      leaving.out = out, leaving.rows = rows, leaving.columns = p.columns, leaving.out_row = p.out_row,
      leaving.out_bytes = p.out_bytes;
      leaving.first = p.first && step == 0;
    }
    lhs_block += kAmxStepsTogether * amx_step_bytes(kKind), rhs += kAmxStepsTogether * p.rhs_step;
  }
  leaving.finish(kAmxLines);
}

template <AmxKind... kKinds> constexpr AmxKernels make_kernels() {
  return {{pack<kKinds, false>...}, {pack<kKinds, true>...}, {multiply<kKinds>...}, &configure, &release};
}

}  // namespace

constinit const AmxKernels kAmxKernels =
    make_kernels<AmxKind::bf16, AmxKind::f32, AmxKind::i8_i8, AmxKind::i8_u8, AmxKind::u8_i8, AmxKind::u8_u8>();

}  // namespace fermata
