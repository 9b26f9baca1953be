// See bf16_pairs_kernels.h. Everything here has internal linkage and nothing of the standard library is called: a
// function shared with other files could run there with instructions the machine lacks.
#include "codegen_cpu/library/bf16_pairs_kernels.h"

#include <immintrin.h>

namespace fermata {
namespace {

constexpr std::int64_t kStep = 16, kStepBytes = 2048, kHalfBytes = 1024;  // pairs that lie together in a panel

inline __m512bh pairs_at(const std::byte* from) {
  __m512bh pairs;
  __builtin_memcpy(&pairs, from, sizeof(pairs));
  return pairs;
}
/// The same pair in all lanes.
inline __m512bh pair_of(const std::byte* from) {
  std::int32_t pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  const __m512i all = _mm512_set1_epi32(pair);
  __m512bh pairs;
  __builtin_memcpy(&pairs, &all, sizeof(pairs));
  return pairs;
}
/// The compiler is not to work out the addresses of all rows beforehand and keep them on the stack.
inline const std::byte* beyond(const std::byte* row, std::int64_t bytes) {
  row += bytes;
  asm("" : "+r"(row));
  return row;
}

void store_narrow(std::byte* to, __m512 low, __m512 high, std::uint32_t columns) {
  const __m512bh narrow = _mm512_cvtne2ps_pbh(high, low);
  __m512i bits;
  __builtin_memcpy(&bits, &narrow, sizeof(bits));
  _mm512_mask_storeu_epi16(to, columns, bits);
}

template <int kRows, int kVectors> void multiply_rows(const Bf16PairsRun& r) {
  constexpr int kFirst = (kRows + 1) / 2, kTogether = 4, kPointers = (kFirst + kTogether - 1) / kTogether;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 16
  for (auto& row : sums)
#pragma GCC unroll 2
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  const std::int64_t x_row = r.x_row;
  const std::byte *panel = r.panel, *ahead = r.ahead[0], *also_ahead = r.ahead[1];
  for (std::int64_t s = 0; s < r.stretch_count; ++s) {
    const std::byte* rows[2][kPointers];  // one for four rows: as many addresses as rows would not fit in registers
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::byte* x = r.x[half] + r.stretches[s];
#pragma GCC unroll 2
      for (int i = 0; i < kPointers; ++i, x = beyond(x, kTogether * x_row)) rows[half][i] = x;
    }
    const std::byte* const next = panel + r.stretch_bytes;
    for (std::int64_t left = r.pairs; left > 0; left -= kStep) {
      const std::byte* const end = panel + (left < kStep ? left : kStep) * 64;
      const std::byte* const next_step = panel + kStepBytes;
      do {
        __m512bh columns[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) columns[v] = pairs_at(panel + v * kHalfBytes);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const int half = i >= kFirst, in_half = half == 0 ? i : i - kFirst;
          const __m512bh x = pair_of(rows[half][in_half / kTogether] + in_half % kTogether * x_row);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], columns[v], x);
        }
        __builtin_prefetch(ahead, 0, 2), __builtin_prefetch(also_ahead, 0, 2);
        ahead += r.ahead_step[0], also_ahead += r.ahead_step[1];
        panel += 64;
#pragma GCC unroll 2
        for (auto& half : rows)
#pragma GCC unroll 2
          for (const std::byte*& row : half) row += 4;
      } while (panel != end);
      panel = next_step;
    }
    panel = next;
  }
  const std::uint32_t columns = r.columns >= 32 ? ~0u : (1u << r.columns) - 1;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const int half = i >= kFirst, in_half = half == 0 ? i : i - kFirst;
    std::byte* const to = r.out[half] + in_half * r.out_row;
    if (r.is_wide)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        _mm512_mask_storeu_ps(to + v * 64, static_cast<__mmask16>(columns >> (16 * v)), sums[i][v]);
    else
      store_narrow(to, sums[i][0], sums[i][kVectors - 1], columns);
  }
}

using MultiplyRows = void (*)(const Bf16PairsRun&);
template <int kVectors> constexpr MultiplyRows kMultiplyRows[] = {
    &multiply_rows<1, kVectors>,  &multiply_rows<2, kVectors>,  &multiply_rows<3, kVectors>,
    &multiply_rows<4, kVectors>,  &multiply_rows<5, kVectors>,  &multiply_rows<6, kVectors>,
    &multiply_rows<7, kVectors>,  &multiply_rows<8, kVectors>,  &multiply_rows<9, kVectors>,
    &multiply_rows<10, kVectors>, &multiply_rows<11, kVectors>, &multiply_rows<12, kVectors>,
    &multiply_rows<13, kVectors>, &multiply_rows<14, kVectors>};
static_assert(sizeof(kMultiplyRows<1>) == kPairRows * sizeof(MultiplyRows));

void multiply(const Bf16PairsRun& r) { (r.columns > 16 ? kMultiplyRows<2> : kMultiplyRows<1>)[r.rows - 1](r); }

void copy(const CopiedStretches& c) {
  const std::int64_t whole = c.bytes / 64 * 64;
  const __mmask64 rest = (__mmask64{1} << (c.bytes - whole)) - 1;
  std::byte* to = c.to;
  const std::byte* from = c.from;
  for (std::int64_t i = 0; i < c.count; ++i, to += c.to_step, from += c.from_step) {
    for (std::int64_t b = 0; b < whole; b += 64) _mm512_storeu_si512(to + b, _mm512_loadu_si512(from + b));
    if (rest != 0) _mm512_mask_storeu_epi8(to + whole, rest, _mm512_maskz_loadu_epi8(rest, from + whole));
  }
}

}  // namespace

constinit const Bf16PairsKernels kBf16PairsKernels{&multiply, &copy};

}  // namespace fermata
