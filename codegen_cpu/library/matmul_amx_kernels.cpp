// See matmul_amx_kernels.h. Everything here has internal linkage and nothing of the standard library is called: a
// function shared with other files could run there with instructions the machine lacks.
#include "codegen_cpu/library/matmul_amx_kernels.h"

#include "codegen_cpu/library/amx_split.h"

namespace fermata {
namespace {

constexpr std::int64_t kHalf = 16;  // lines of a tile, and its groups of 32 bit along k

// ---- Packing
// ----------------------------------------------------------------------------------------------------------

__mmask64 first_lanes(std::int64_t count) {
  return count <= 0 ? 0 : count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}
__m512i low_half(__m256i x) { return _mm512_cvtepu16_epi32(x); }
__m512i high_half(__m256i x) { return _mm512_slli_epi32(low_half(x), 16); }
__m256i bits(__m256bh x) {
  __m256i v;
  __builtin_memcpy(&v, &x, sizeof v);
  return v;
}

/// How elements of a kind are brought into 32-bit groups of k. along_k: a line's elements [0, count) as 16 groups;
/// along_lines: one group of 16 lines, of elements [0, count) along k. Both sides put the same places of k together.
/// `most` joins magnitudes.
template <AmxKind> struct Elements {  // bytes: four that follow each other
  using Element = std::uint8_t;
  static void along_k(const Element* from, std::int64_t count, __m512i* to, __m512i&) {
    to[0] = _mm512_maskz_loadu_epi8(first_lanes(count), from);
  }
  static void along_lines(const Element* from, std::int64_t k_stride, std::int64_t count, std::int64_t group,
                          __mmask16 lines, __m512i* to, __m512i&) {
    __m512i all = _mm512_setzero_si512();
    for (int i = 0; i < 4 && 4 * group + i < count; ++i) {
      const __m512i row = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lines, from + (4 * group + i) * k_stride));
      all = _mm512_or_si512(all, _mm512_slli_epi32(row, static_cast<unsigned>(8 * i)));
    }
    to[0] = all;
  }
};
template <> struct Elements<AmxKind::bf16> {  // two that follow each other
  using Element = std::uint16_t;
  static void along_k(const Element* from, std::int64_t count, __m512i* to, __m512i&) {
    to[0] = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(first_lanes(count)), from);
  }
  static void along_lines(const Element* from, std::int64_t k_stride, std::int64_t count, std::int64_t group,
                          __mmask16 lines, __m512i* to, __m512i&) {
    const auto row = [&](std::int64_t k) {
      return k < count ? _mm256_maskz_loadu_epi16(lines, from + k * k_stride) : _mm256_setzero_si256();
    };
    to[0] = _mm512_or_si512(low_half(row(2 * group)), high_half(row(2 * group + 1)));
  }
};
/// The parts of numbers (amx_split.h). Places k and k + 16 are a group.
template <> struct Elements<AmxKind::f32> {
  using Element = float;
  static void along_k(const Element* from, std::int64_t count, __m512i* to, __m512i& most) {
    const auto mask = static_cast<std::uint32_t>(first_lanes(count));
    split(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from),
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + kHalf), to, most);
  }
  static void along_lines(const Element* from, std::int64_t k_stride, std::int64_t count, std::int64_t group,
                          __mmask16 lines, __m512i* to, __m512i& most) {
    const auto row = [&](std::int64_t k) {
      return k < count ? _mm512_maskz_loadu_ps(lines, from + k * k_stride) : _mm512_setzero_ps();
    };
    split(row(group), row(group + kHalf), to, most);
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
  constexpr std::int64_t kStep = amx_step(kKind), kParts = amx_parts(kKind);
  constexpr bool kTransposes = kAlongLines != kRight;
  const auto store = [&](std::int64_t part, std::int64_t i, __m512i x) {
    _mm512_store_si512(to + part * 2 * kAmxTileBytes + i * 64, x);
  };
  __m512i tiles[kTransposes ? kParts : 1][kHalf];
  for (std::int64_t i = 0; i < kHalf; ++i) {
    __m512i parts[kParts];
    if constexpr (kAlongLines) {
      Elements<kKind>::along_lines(from, k_stride, count, i, static_cast<__mmask16>(first_lanes(lines)), parts,
                                   most[0]);
    } else {
      const E* line = from + i * line_stride;
      E gathered[kStep];
      if (k_stride != 1 && i < lines) {
        for (std::int64_t k = 0; k < count; ++k) gathered[k] = line[k * k_stride];
        line = gathered;
      }
      Elements<kKind>::along_k(line, i < lines ? count : 0, parts, most[i]);
    }
    for (std::int64_t part = 0; part < kParts; ++part)
      if constexpr (kTransposes)
        tiles[part][i] = parts[part];
      else
        store(part, i, parts[part]);
  }
  for (std::int64_t part = 0; kTransposes && part < kParts; ++part) {
    transpose(tiles[part]);
    for (std::int64_t i = 0; i < kHalf; ++i) store(part, i, tiles[part][i]);
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

// ---- Products
// ---------------------------------------------------------------------------------------------------------

struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfiguration kConfiguration;  // not on the stack: the intrinsic does not say how much it reads

void configure() { _tile_loadconfig(&kConfiguration); }
void release() { _tile_release(); }

// Tile registers: 0 to 3 are sums (upper left, upper right, lower left, lower right), 4 and 5 the halves of the left
// side, 6 and 7 of the right. The intrinsics take numbers only.
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

constexpr std::int64_t kRow = kAmxLines * 4;  // bytes of a row of sums

/// A product of two panels that has left the tile registers. While the next one is computed, it is added to its sums.
struct Leaving {
  const std::byte* product = nullptr;
  const std::byte* before;  // what it is added to: the sums, or zeros if there are none yet
  std::int64_t before_row;
  std::byte *sums, *out;
  std::int64_t rows = 0, out_row;
  __mmask16 columns[2];  // of the result, in both halves
};
/// Where the sums go: to memory of their own, to a result of as many bytes, or to one of narrower elements.
enum class Leave { sums, whole, narrow };

template <AmxKind kKind, Leave kLeave>
[[gnu::always_inline]] inline void leave(const Leaving& l, std::int64_t row, std::int64_t end) {
  if (row >= end) return;
  const std::byte *product = l.product + row * kRow, *before = l.before + row * l.before_row;
  std::byte* to = kLeave == Leave::sums ? l.sums + row * kRow : l.out + row * l.out_row;
  const std::int64_t to_row = kLeave == Leave::sums ? kRow : l.out_row;
  for (; row < end; ++row, product += kRow, before += l.before_row, to += to_row)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512i x = _mm512_load_si512(product + half * 64);
      const __m512i sum = _mm512_load_si512(before + half * 64);
      if constexpr (kKind == AmxKind::bf16 || kKind == AmxKind::f32)
        x = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(sum), _mm512_castsi512_ps(x)));
      else
        x = _mm512_add_epi32(sum, x);
      if constexpr (kLeave == Leave::sums)
        _mm512_store_si512(to + half * 64, x);
      else if constexpr (kLeave == Leave::whole)
        _mm512_mask_storeu_epi32(to + half * 64, l.columns[half], x);
      else if constexpr (kKind == AmxKind::bf16)
        _mm256_mask_storeu_epi16(to + half * 32, l.columns[half], bits(_mm512_cvtneps_pbh(_mm512_castsi512_ps(x))));
      else
        _mm512_mask_cvtepi32_storeu_epi8(to + half * 16, l.columns[half], x);
    }
}

/// What a product of panels is computed from, and what is done meanwhile.
struct Panels {
  const std::byte *lhs, *rhs;
  std::int64_t rhs_step, rhs_half, rhs_line, steps;
  std::byte* product;
  const std::byte* out;  // the rows of the result that this goes to, if it does: fetched
  std::int64_t out_row, out_last;
};

/// Two panels' product over some steps, stored as 32 rows.
template <AmxKind kKind, bool kLower, bool kRight, Leave kLeave>
void multiply_panels(const Panels& p, const Leaving& leaving) {
  const std::int64_t half = p.rhs_half, line = p.rhs_line, rhs_step = p.rhs_step, steps = p.steps,
                     rows_each = (kAmxLines + steps - 1) / steps;
  const std::byte *lhs = p.lhs, *rhs = p.rhs, *out = p.out;
  std::int64_t row = 0;
  const auto meanwhile = [&]() __attribute__((always_inline)) {
    const std::int64_t end = row + rows_each < leaving.rows ? row + rows_each : leaving.rows;
    leave<kKind, kLeave>(leaving, row, end);
    row += rows_each;
    if (out == nullptr) return;
    for (std::int64_t i = 0; i < rows_each; ++i, out += p.out_row)
      __builtin_prefetch(out, 1), __builtin_prefetch(out + p.out_last, 1);
  };
  _tile_zero(0);
  if constexpr (kRight) _tile_zero(1);
  if constexpr (kLower) _tile_zero(2);
  if constexpr (kLower && kRight) _tile_zero(3);
  asm volatile("" ::: "memory");  // the intrinsics do not say that they read memory
  if constexpr (kKind == AmxKind::f32) {
    // What is small first, and then a1 b1, so that few sums are rounded as the largest are: a3 b1, a2 b1, a2 b2, a1 b2,
    // a1 b3, of which each changes one side. a2 b3, a3 b2 and a3 b3 are below 2^-25 of the whole.
    constexpr std::int64_t kPart = 2 * kAmxTileBytes;
    const std::byte *l = lhs, *r = rhs;
    for (std::int64_t step = 0; step < steps; ++step, l += amx_step_bytes(kKind), r += rhs_step) {
      load_lhs<kLower>(l + 2 * kPart), load_rhs<kRight>(r, half, line), dot<kKind, kLower, kRight>();
      load_lhs<kLower>(l + kPart), dot<kKind, kLower, kRight>();
      load_rhs<kRight>(r + kPart, half, line), dot<kKind, kLower, kRight>();
      load_lhs<kLower>(l), dot<kKind, kLower, kRight>();
      load_rhs<kRight>(r + 2 * kPart, half, line), dot<kKind, kLower, kRight>();
      meanwhile();
    }
  }
  for (std::int64_t step = 0; step < steps; ++step, lhs += amx_step_bytes(kKind), rhs += rhs_step) {
    load_lhs<kLower>(lhs), load_rhs<kRight>(rhs, half, line), dot<kKind, kLower, kRight>();
    if constexpr (kKind != AmxKind::f32) meanwhile();
  }
  std::byte* const to = p.product;
  _tile_stored(0, to, kRow);
  if constexpr (kRight) _tile_stored(1, to + 64, kRow);
  if constexpr (kLower) _tile_stored(2, to + 16 * kRow, kRow);
  if constexpr (kLower && kRight) _tile_stored(3, to + 16 * kRow + 64, kRow);
}

template <AmxKind kKind, Leave kLeave>
void multiply_panels(bool lower, bool right, const Panels& p, const Leaving& leaving) {
  if (lower)
    right ? multiply_panels<kKind, true, true, kLeave>(p, leaving)
          : multiply_panels<kKind, true, false, kLeave>(p, leaving);
  else
    right ? multiply_panels<kKind, false, true, kLeave>(p, leaving)
          : multiply_panels<kKind, false, false, kLeave>(p, leaving);
}

/// Leaves what there is to leave, by itself or while other panels are multiplied.
template <AmxKind kKind, class F> [[gnu::always_inline]] inline void with_leave(const Leaving& l, bool narrow, F&& f) {
  if (l.out == nullptr) {
    f.template operator()<Leave::sums>();
  } else if (narrow) {
    if constexpr (kKind != AmxKind::f32) f.template operator()<Leave::narrow>();
  } else {
    if constexpr (kKind != AmxKind::bf16) f.template operator()<Leave::whole>();
  }
}

/// Block by block along k, and of each a panel of rows after the other: what is next to each other in the result is
/// written together.
template <AmxKind kKind> void multiply(const AmxProduct& p) {
  alignas(64) static constexpr std::byte kZeros[kRow] = {};
  alignas(4096)
      std::byte products[2][kAmxLines * kRow];  // panels begin at pages, too: loads seldom meet a store under way
  const auto least = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  const bool narrow = p.out_bytes < 4;
  const std::int64_t sums_panel = (p.rows + kAmxLines - 1) / kAmxLines * kAmxLines * kRow;
  Leaving leaving;
  leaving.out_row = p.out_row, leaving.out = nullptr;
  Panels panels{.lhs = nullptr,
                .rhs = nullptr,
                .rhs_step = p.rhs_step,
                .rhs_half = p.rhs_half,
                .rhs_line = p.rhs_line,
                .steps = 0,
                .product = products[0],
                .out = nullptr,
                .out_row = p.out_row,
                .out_last = 0};
  for (std::int64_t step = 0; step < p.steps; step += kAmxStepsTogether) {
    panels.steps = least(kAmxStepsTogether, p.steps - step);
    const bool is_last = p.out != nullptr && step + panels.steps == p.steps;
    for (std::int64_t i = 0; i < p.rows; i += kAmxLines) {
      const std::int64_t rows = least(kAmxLines, p.rows - i);
      panels.lhs = p.lhs + i / kAmxLines * p.lhs_panel + step * amx_step_bytes(kKind);
      panels.rhs = p.rhs + step * p.rhs_step;
      for (std::int64_t j = 0; j < p.columns; j += kAmxLines, panels.rhs += p.rhs_panel) {
        const std::int64_t columns = least(kAmxLines, p.columns - j);
        std::byte* const out = is_last ? p.out + i * p.out_row + j * p.out_bytes : nullptr;
        panels.out = rows == kAmxLines ? out : nullptr, panels.out_last = columns * p.out_bytes - 1;
        with_leave<kKind>(leaving, narrow, [&]<Leave kLeave>() {
          multiply_panels<kKind, kLeave>(rows > kHalf, columns > kHalf, panels, leaving);
        });
        leaving.product = panels.product, leaving.out = out, leaving.rows = rows;
        leaving.sums = p.sums + j / kAmxLines * sums_panel + i * kRow;
        const bool is_first = p.first && step == 0;
        leaving.before = is_first ? kZeros : leaving.sums, leaving.before_row = is_first ? 0 : kRow;
        leaving.columns[0] = static_cast<__mmask16>(first_lanes(columns));
        leaving.columns[1] = static_cast<__mmask16>(first_lanes(columns - kHalf));
        panels.product = panels.product == products[0] ? products[1] : products[0];
      }
    }
  }
  with_leave<kKind>(leaving, narrow, [&]<Leave kLeave>() { leave<kKind, kLeave>(leaving, 0, leaving.rows); });
}

template <AmxKind... kKinds> constexpr AmxKernels make_kernels() {
  return {{pack<kKinds, false>...}, {pack<kKinds, true>...}, {multiply<kKinds>...}, &configure, &release};
}

}  // namespace

constinit const AmxKernels kAmxKernels =
    make_kernels<AmxKind::bf16, AmxKind::f32, AmxKind::i8_i8, AmxKind::i8_u8, AmxKind::u8_i8, AmxKind::u8_u8>();

}  // namespace fermata
