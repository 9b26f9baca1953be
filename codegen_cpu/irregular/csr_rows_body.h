// The body of csr_rows_*.cpp, for vectors of FERMATA_VECTOR_BYTES. Everything here has internal linkage and nothing of
// the standard library is called: a function shared with other files could run there with instructions that the
// machine lacks.
//
// A tile of four vectors of one row of the result stays in registers while the row's entries are read; they are few and
// then lie in the first-level cache for the next tile. Rows of the dense matrix are asked for some entries ahead.
#include "codegen_cpu/irregular/csr.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

template <class T> struct VectorOf;
#define FERMATA_VECTOR(T) \
  template <> struct VectorOf<T> { typedef T type __attribute__((vector_size(FERMATA_VECTOR_BYTES), aligned(1))); };
FERMATA_VECTOR(std::uint8_t)
FERMATA_VECTOR(std::uint16_t)
FERMATA_VECTOR(std::uint32_t)
FERMATA_VECTOR(std::uint64_t)
FERMATA_VECTOR(float)
FERMATA_VECTOR(double)
#undef FERMATA_VECTOR

constexpr std::int64_t kAhead = 8;  // entries

template <class T> struct Row {
  const T* values;
  const std::int64_t* columns;
  std::int64_t entries;
  const T* dense;
  std::int64_t stride;
};

/// kVectors vectors of the result from column `at`.
template <class T, int kVectors> inline void add_tile(const Row<T>& row, std::int64_t at, T* out) {
  using V = typename VectorOf<T>::type;
  constexpr auto kLanes = static_cast<std::int64_t>(FERMATA_VECTOR_BYTES / sizeof(T));
  V sums[kVectors] = {};
  for (std::int64_t e = 0; e < row.entries; ++e) {
    const T* const from = row.dense + row.columns[e] * row.stride + at;
    if (e + kAhead < row.entries) __builtin_prefetch(row.dense + row.columns[e + kAhead] * row.stride + at);
    const V factor = V{} + row.values[e];
    for (int v = 0; v < kVectors; ++v) sums[v] += factor * *reinterpret_cast<const V*>(from + v * kLanes);
  }
  for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(out + at + v * kLanes) = sums[v];
}

template <class T> void add_row(const Row<T>& row, std::int64_t columns, T* out) {
  constexpr auto kLanes = static_cast<std::int64_t>(FERMATA_VECTOR_BYTES / sizeof(T));
  std::int64_t at = 0;
  for (; at + 4 * kLanes <= columns; at += 4 * kLanes) add_tile<T, 4>(row, at, out);
  for (; at + kLanes <= columns; at += kLanes) add_tile<T, 1>(row, at, out);
  for (; at < columns; ++at) {
    T sum = 0;
    for (std::int64_t e = 0; e < row.entries; ++e)
      sum = static_cast<T>(sum + csr_product(row.values[e], row.dense[row.columns[e] * row.stride + at]));
    out[at] = sum;
  }
}

/// One column: four chains, so that additions need not wait for each other. They are never counted by a variable, which
/// would keep them in memory.
template <class T> T dot_row(const Row<T>& row) {
  T a{}, b{}, c{}, d{};
  const auto add = [&](T sum, std::int64_t e) {
    return static_cast<T>(sum + csr_product(row.values[e], row.dense[row.columns[e] * row.stride]));
  };
  std::int64_t e = 0;
  for (; e + 4 <= row.entries; e += 4) a = add(a, e), b = add(b, e + 1), c = add(c, e + 2), d = add(d, e + 3);
  if (e < row.entries) a = add(a, e);
  if (e + 1 < row.entries) b = add(b, e + 1);
  if (e + 2 < row.entries) c = add(c, e + 2);
  return static_cast<T>(static_cast<T>(a + b) + static_cast<T>(c + d));
}

template <class T> void csr_rows(const CsrRows& r, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t first = r.pattern.offsets[i], last = r.pattern.offsets[i + 1];
    const Row<T> row{static_cast<const T*>(r.values) + first, r.pattern.columns + first, last - first,
                     static_cast<const T*>(r.dense), r.dense_row_stride};
    T* const out = static_cast<T*>(r.out) + i * r.columns;
    if (r.columns == 1)
      *out = dot_row(row);
    else
      add_row(row, r.columns, out);
  }
}

constexpr CsrKernels kKernels = {{&csr_rows<std::uint8_t>, &csr_rows<std::uint16_t>, &csr_rows<std::uint32_t>,
                                  &csr_rows<std::uint64_t>, &csr_rows<float>, &csr_rows<double>}};

}  // namespace
}  // namespace fermata
