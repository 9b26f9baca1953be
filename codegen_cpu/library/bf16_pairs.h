// Products and convolutions of bf16 by pairs (vdpbf16ps), for processors with AVX-512 BF16: sums of f32, each one chain
// over all of k, so that no cut changes a bit. Numbers below 2^-126 count as zero, as with tiles (matmul_amx.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codegen_cpu/library/bf16_pairs_kernels.h"

namespace fermata {

/// Whether the processor has them, and FERMATA_CPU permits them.
bool has_bf16_pairs();

/// Of a right side: panels of kPairColumns columns one after another, of each the stretches of k.
struct PairPanels {
  PairPanels(std::int64_t columns, std::int64_t stretches, std::int64_t depth);  // of each stretch
  std::int64_t columns, stretches, depth, pairs, stretch_bytes, panel_bytes;
  std::int64_t count() const { return (columns + kPairColumns - 1) / kPairColumns; }
  std::int64_t bytes() const { return count() * panel_bytes; }
  /// Packs columns [first, end) for `to`, where the panel of the first column is; the first one starts a panel.
  /// Strides in elements: of a column, along k, and from a stretch to the next.
  struct Source {
    const std::byte* from;
    std::int64_t column_stride, k_stride, stretch_stride;
  };
  void pack(const Source& source, std::int64_t first, std::int64_t end, std::byte* to) const;
};

/// Up to kPairRows rows of a result: the left side's and the result's first row in each half, from where they begin.
struct PairRows {
  std::int64_t x[2], out[2];  // bytes
  std::int64_t rows;
};
/// Adds `rows` rows that are equally far apart, shared out evenly, to `to`.
struct EvenRows {
  std::int64_t x, x_row, out, out_row, rows;
};
template <class Vector> void add_runs(const EvenRows& e, Vector& to) {
  const std::int64_t parts = (e.rows + kPairRows - 1) / kPairRows;
  std::int64_t x = e.x, out = e.out;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t rows = e.rows / parts + (part < e.rows % parts), half = first_half(rows);
    to.push_back({{x, x + half * e.x_row}, {out, out + half * e.out_row}, rows});
    x += rows * e.x_row, out += rows * e.out_row;
  }
}

/// Rows of a result times some panels, panel after panel.
struct PairBlock {
  const std::byte* x;
  std::int64_t x_row;
  std::span<const std::int64_t> stretches;
  std::span<const PairRows> rows;
  const std::byte* panels;  // of the first column
  std::byte* out;           // likewise
  std::int64_t out_row, columns;
  bool is_wide;
  std::span<const std::byte> wanted_next = {};  // fetched meanwhile
};
void multiply(const PairPanels& layout, const PairBlock& block);

}  // namespace fermata
