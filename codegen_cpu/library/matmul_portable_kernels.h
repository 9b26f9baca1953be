// What the portable matmul is made of, compiled once per instruction set (matmul_portable_*.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// How elements lie in memory. Signed integers use the unsigned rows: wrapping products have the same low bits.
enum class MatmulStorage : std::uint8_t { u8, u16, u32, u64, f16, bf16, f32, f64, count };

/// Blocks of a tile, at most: rows of the left side, and how deep they and panels of the right side are. A block of the
/// left side, 448 KiB, stays in the second-level cache while panels pass by. Shallower blocks read and write sums more
/// often: 1024^3 of f32 runs at 0.94 of the peak of Zen 5, 0.86 with blocks of 384.
inline constexpr std::int64_t kPortableRows = 112;
constexpr std::int64_t portable_depth(std::size_t sum_bytes) { return 4096 / static_cast<std::int64_t>(sum_bytes); }
/// Elements from a copied row of the left side to the next: rows that are used together lie in different cache sets.
constexpr std::int64_t portable_lhs_row(std::size_t sum_bytes) { return portable_depth(sum_bytes) + 16; }
/// Columns whose panels a tile packs together where it packs its own: of several blocks of rows, each is copied again
/// for so many.
inline constexpr std::int64_t kPortableColumns = 256;

/// Rows of a panel, with one more where that many would put all panels into the same sets of a cache.
constexpr std::int64_t panel_rows(std::int64_t k) { return k | 1; }
/// The right side of a product as panels of `panel_columns` columns, each all of k deep, widened to the type of the
/// sums.
struct PortableRhs {
  const void* rhs;
  std::int64_t k_stride, column_stride;  // in elements
  std::int64_t k, columns;
  void* panels;
};

/// out[rows, columns] = lhs[rows, k] rhs[k, columns]; strides in elements, out has unit stride along its rows.
struct PortableTile {
  const void* lhs;
  std::int64_t lhs_row, lhs_k;
  const void* rhs;
  std::int64_t rhs_k, rhs_column;
  const void* rhs_panels;  // from pack_rhs, of the tile's first column; null: rhs is read
  void* out;
  std::int64_t out_row;
  std::int64_t rows, columns, k;
  void* scratch;  // portable_scratch_bytes, 64-byte aligned
};
constexpr std::size_t sum_bytes(MatmulStorage s) { return s == MatmulStorage::u64 || s == MatmulStorage::f64 ? 8 : 4; }
constexpr std::size_t portable_scratch_bytes(MatmulStorage s, std::int64_t rows, std::int64_t columns) {
  const bool widened =
      s == MatmulStorage::u8 || s == MatmulStorage::u16 || s == MatmulStorage::f16 || s == MatmulStorage::bf16;
  const std::int64_t padded = (columns + 63) / 64 * 64;
  const std::int64_t lhs = kPortableRows * portable_lhs_row(sum_bytes(s)),
                     panels = panel_rows(portable_depth(sum_bytes(s))) * kPortableColumns;
  return sum_bytes(s) * static_cast<std::size_t>(lhs + panels + (widened ? rows * padded : 0));
}

/// Vectors times a matrix: out[r * out_vector + j * out_column] = sum over p of vector r [p] matrix[p, j]. Either
/// matrix_k is 1 and sums are by halves, or matrix_column is 1, and there is one vector.
struct PortableVectorProduct {
  const void* vector;
  std::int64_t vectors, to_next_vector, vector_stride;
  const void* matrix;
  std::int64_t matrix_k, matrix_column;
  bool by_halves;
  void* out;
  std::int64_t out_vector, out_column;
  std::int64_t columns, k;
  void* scratch;  // vector_scratch_bytes(vectors, k), 64-byte aligned
};
/// Columns done together where the matrix lies along them: their sums stay in the first-level cache.
inline constexpr std::int64_t kVectorColumns = 1024;
/// Chains of a sum by halves; a vector takes a multiple of so many elements of scratch memory.
inline constexpr std::int64_t kHalvesChains = 64;
constexpr std::size_t vector_scratch_bytes(std::int64_t vectors, std::int64_t k) {
  return static_cast<std::size_t>(vectors * (k + kHalvesChains) + kVectorColumns) * 8;
}

struct PortableKernels {
  void (*pack_rhs[static_cast<std::size_t>(MatmulStorage::count)])(const PortableRhs&) = {};
  void (*tile[static_cast<std::size_t>(MatmulStorage::count)])(const PortableTile&) = {};
  void (*vector_product[static_cast<std::size_t>(MatmulStorage::count)])(const PortableVectorProduct&) = {};
  std::int64_t panel_columns[static_cast<std::size_t>(MatmulStorage::count)] = {};
  int vector_bytes;
  std::int64_t few_rows;  // up to so many of a tile, panels of the right side are not made beforehand
};

/// A tile of f32 by the kernel for this processor; without scratch memory of the caller it takes its own.
void multiply_f32_tile(PortableTile tile);

extern const PortableKernels kPortableBaseline;
#if defined(__x86_64__)
extern const PortableKernels kPortableAvx2;
extern const PortableKernels kPortableAvx512;
#endif

}  // namespace fermata
