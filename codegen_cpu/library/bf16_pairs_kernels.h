// What products of bf16 by pairs (vdpbf16ps) are made of, in a file of their own that is compiled for them
// (bf16_pairs_kernels.cpp).
//
// The right side lies in panels of 32 columns, as matmul_amx_kernels.h packs them: for each 16 pairs along k those of
// 16 columns, then those of the other 16. The left side is read where it lies, two elements that follow each other
// along k at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// Sums that are computed together: in registers, in two halves of rows.
inline constexpr std::int64_t kPairRows = 14, kPairColumns = 32;
/// The rows of the first half.
constexpr std::int64_t first_half(std::int64_t rows) { return (rows + 1) / 2; }

/// out[rows, columns] = x[rows, k] times a panel, where k is the pairs of all stretches, one after another.
struct Bf16PairsRun {
  const std::byte* x[2];                             // the first row of each half
  std::int64_t x_row;                                // bytes from a row to the next in a half
  const std::int64_t* stretches;                     // bytes from a row to where each of its stretches begins
  std::int64_t stretch_count, pairs, stretch_bytes;  // how many, the pairs of each, and its bytes in the panel
  const std::byte* panel;
  std::byte* out[2];
  std::int64_t out_row;        // bytes
  std::int64_t rows, columns;  // up to kPairRows and kPairColumns
  bool is_wide;                // the result is f32, not bf16
  const std::byte* ahead[2];   // fetched meanwhile: so many bytes for each pair
  std::int64_t ahead_step[2];
};

/// to[i * to_step + b] = from[i * from_step + b] for b < bytes.
struct CopiedStretches {
  std::byte* to;
  const std::byte* from;
  std::int64_t to_step, from_step, bytes, count;
};

struct Bf16PairsKernels {
  void (*multiply)(const Bf16PairsRun&);
  void (*copy)(const CopiedStretches&);
};
#if defined(__x86_64__)
extern const Bf16PairsKernels kBf16PairsKernels;
#endif

}  // namespace fermata
