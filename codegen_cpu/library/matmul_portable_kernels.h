// What the portable matmul is made of, compiled once per instruction set (matmul_portable_*.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// How elements lie in memory. Signed integers use the unsigned rows: wrapping products have the same low bits.
enum class MatmulStorage : std::uint8_t { u8, u16, u32, u64, f16, bf16, f32, f64, count };

/// Limits of one tile; its panels and sums then fit in a second-level cache of 1 MiB.
inline constexpr std::int64_t kPortableRows = 192, kPortableDepth = 192;
constexpr std::int64_t portable_columns(MatmulStorage s) {
  return s == MatmulStorage::u64 || s == MatmulStorage::f64 ? 256 : 512;
}
inline constexpr std::size_t kPortableScratch =
    static_cast<std::size_t>(kPortableRows * kPortableDepth * 8 + (kPortableDepth + kPortableRows) * 512 * 4);

/// out[rows, columns] = lhs[rows, k] rhs[k, columns]; strides in elements, out has unit stride along its rows.
struct PortableTile {
  const void* lhs;
  std::int64_t lhs_row, lhs_k;
  const void* rhs;
  std::int64_t rhs_k, rhs_column;
  void* out;
  std::int64_t out_row;
  std::int64_t rows, columns, k;
  void* scratch;  // kPortableScratch bytes, 64-byte aligned
};

/// out[j] = sum over p of vector[p] matrix[p, j]: one of the two strides is 1.
struct PortableVectorProduct {
  const void* vector;
  std::int64_t vector_stride;
  const void* matrix;
  std::int64_t matrix_k, matrix_column;
  void* out;
  std::int64_t columns, k;
  void* scratch;  // vector_scratch_bytes(k), 64-byte aligned
};
/// Columns done together where the matrix lies along them: their sums stay in the first-level cache.
inline constexpr std::int64_t kVectorColumns = 1024;
constexpr std::size_t vector_scratch_bytes(std::int64_t k) {
  return static_cast<std::size_t>(k + kVectorColumns + 64) * 8;
}

struct PortableKernels {
  void (*tile[static_cast<std::size_t>(MatmulStorage::count)])(const PortableTile&);
  void (*vector_product[static_cast<std::size_t>(MatmulStorage::count)])(const PortableVectorProduct&);
  double multiply_adds_per_ns;  // f32, of a tile
};

extern const PortableKernels kPortableBaseline;
#if defined(__x86_64__)
extern const PortableKernels kPortableAvx2;
extern const PortableKernels kPortableAvx512;
#endif

}  // namespace fermata
