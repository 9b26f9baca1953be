// The body of matmul_portable_*.cpp, for vectors of kVectorBytes and tiles of kMicroRows rows by two vectors.
//
// The includer defines FERMATA_VECTOR_BYTES and FERMATA_MICRO_ROWS. Everything here has internal linkage and nothing of
// the standard library is called: a function shared with other files could run there with instructions the machine
// lacks.
//
// The scheme is that of Goto and van de Geijn (TOMS 34, 2008): operands are copied, widened to the type of the sums, to
// where the innermost kernel finds them in caches. It adds to a few rows by two vectors of the result in registers, one
// element of each row times two vectors of the right side at a time. The left side is read in rows, so one that lies
// along them is not copied at all.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "codegen_cpu/irregular/transpose_in_registers.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/matmul_portable_storage.h"
#include "codegen_cpu/library/matmul_portable_vectors.h"

namespace fermata {
namespace {

/// Measured: with the registers of AVX2, panels pay sooner.
constexpr std::int64_t kFewRows = kVectorBytes == 64 ? 48 : 12;

/// Columns of a panel of the right side.
template <class T> constexpr std::int64_t kPanel = 2 * kLanes<T>;
/// Elements of a tile's scratch memory for its left side, and for panels of its own.
template <class T> constexpr std::int64_t kLeftSide = kPortableRows* portable_lhs_row(sizeof(T));
template <class T> constexpr std::int64_t kPanels = panel_rows(portable_depth(sizeof(T))) * kPortableColumns;

// ---- Copies
// -----------------------------------------------------------------------------------------------------------

/// to[i * to_row + j] = from[i * row + j * column].
template <class S> void copy_matrix(const typename S::Element* from, std::int64_t row, std::int64_t column,
                                    std::int64_t rows, std::int64_t columns, typename S::Sum* to, std::int64_t to_row) {
  using T = typename S::Sum;
  constexpr std::int64_t kSide = kLanes<T>;
  if (column == 1 && columns == kPanel<T>) {
    for (std::int64_t i = 0; i < rows; ++i, from += row, to += to_row) {
      store(to, load_widened<S>(from));
      store(to + kSide, load_widened<S>(from + kSide));
    }
    return;
  }
  if (column == 1) {
    for (std::int64_t i = 0; i < rows; ++i) widen_row<S>(from + i * row, columns, to + i * to_row);
    return;
  }
  if (row != 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to[i * to_row + j] = S::widen(from[i * row + j * column]);
    return;
  }
  std::int64_t i = 0;
  for (; i + kSide <= rows; i += kSide) {
    std::int64_t j = 0;
    for (; j + kSide <= columns; j += kSide) {
      Vector<T> square[kSide];
#pragma GCC unroll 16
      for (int c = 0; c < kSide; ++c) square[c] = load_widened<S>(from + i + (j + c) * column);
      transpose_in_registers(square);
#pragma GCC unroll 16
      for (int r = 0; r < kSide; ++r) store(to + (i + r) * to_row + j, square[r]);
    }
    for (; j < columns; ++j)
      for (std::int64_t r = i; r < i + kSide; ++r) to[r * to_row + j] = S::widen(from[r + j * column]);
  }
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[i * to_row + j] = S::widen(from[i + j * column]);
}

/// Panel after panel, each all of k deep; what is missing of the last one is zero.
template <class S> void pack_panels(const typename S::Element* from, std::int64_t k_stride, std::int64_t column,
                                    std::int64_t k, std::int64_t columns, typename S::Sum* to, std::int64_t panel) {
  using T = typename S::Sum;
  // Rows that are far apart are read in stretches of some panels, not one by one for each.
  constexpr std::int64_t kTogether = 16;
  const std::int64_t step = column == 1 ? kTogether : k;
  for (std::int64_t p = 0; p < k; p += step) {
    const std::int64_t depth = smaller(step, k - p);
    for (std::int64_t j = 0; j < columns; j += kPanel<T>) {
      const std::int64_t width = smaller(kPanel<T>, columns - j);
      T* const at = to + j / kPanel<T> * panel + p * kPanel<T>;
      copy_matrix<S>(from + p * k_stride + j * column, k_stride, column, depth, width, at, kPanel<T>);
      for (std::int64_t i = 0; width < kPanel<T> && i < depth; ++i)
        for (std::int64_t c = width; c < kPanel<T>; ++c) at[i * kPanel<T> + c] = 0;
    }
  }
}

template <MatmulStorage kStorage> void pack_rhs(const PortableRhs& r) {
  using S = Storage<kStorage>;
  pack_panels<S>(static_cast<const typename S::Element*>(r.rhs), r.k_stride, r.column_stride, r.k, r.columns,
                 static_cast<typename S::Sum*>(r.panels), kPanel<typename S::Sum> * panel_rows(r.k));
}

// ---- Products
// ---------------------------------------------------------------------------------------------------------

/// The compiler is not to work out the addresses of all rows beforehand and keep them on the stack.
template <class T> inline T* next_row(T* row, std::int64_t stride) {
  row += stride;
  asm("" : "+r"(row));
  return row;
}

/// sums[kRows, kVectors vectors] += (or =, on the first step through k) kRows rows times a panel; k is not 0. Fetches a
/// part of the next panel meanwhile: left to the processor, panels arrive late from behind the second-level cache.
template <class T, int kRows, int kVectors>
void multiply_panels(std::int64_t k, const T* a, std::int64_t a_row, const T* b, std::int64_t b_row, T* sums,
                     std::int64_t sums_row, bool first, const std::byte* ahead, std::int64_t ahead_step) {
  using V = Vector<T>;
  // The sums below these come next, and lie far apart.
  const T* next = sums + kRows * sums_row;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i, next = next_row(next, sums_row))
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(next + v * kLanes<T>, 1);
  // Sums that do not exist yet are read from zeros: with two ways to begin, registers would be moved about in between.
  alignas(64) static constexpr T kZeros[kVectors * kLanes<T>] = {};
  const T* before = first ? kZeros : sums;
  const std::int64_t before_row = first ? 0 : sums_row;
  V acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i, before = next_row(before, before_row))
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = load<V>(before + v * kLanes<T>);
  // One pointer for three rows: as many addresses as there are rows would not fit in registers.
  constexpr int kPointers = (kRows + 2) / 3;
  const T* rows[kPointers];
#pragma GCC unroll 5
  for (const T*& row : rows) row = a, a = next_row(a, 3 * a_row);
  const T* const end = rows[0] + k;
  // With AVX2 the ends of steps cost: 1024^3 of f32 on Zen 3 runs at 46.0 multiply-adds per ns instead of 44.5.
#pragma GCC unroll kVectorBytes == 32 ? 2 : 1
  do {
    V columns[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) columns[v] = load<V>(b + v * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x = splat(rows[i / 3][i % 3 * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] = fused(x, columns[v], acc[i][v]);
    }
    __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_step;
    b += b_row;
#pragma GCC unroll 5
    for (const T*& row : rows) ++row;
  } while (rows[0] != end);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i, sums = next_row(sums, sums_row))
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(sums + v * kLanes<T>, acc[i][v]);
}

template <class T> using MultiplyPanels = void (*)(std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*,
                                                   std::int64_t, bool, const std::byte*, std::int64_t);
template <class T, class> struct MicroKernels;
template <class T, int... kRows> struct MicroKernels<T, std::integer_sequence<int, kRows...>> {
  static constexpr MultiplyPanels<T> of[2][sizeof...(kRows)] = {{multiply_panels<T, kRows + 1, 1>...},
                                                                {multiply_panels<T, kRows + 1, 2>...}};
};

/// A block of rows of the left side times a panel. Rows are shared out evenly: a rest of one or two
/// would cost as much as many.
template <class T> void multiply_block(const T* lhs, std::int64_t lhs_row, std::int64_t rows, std::int64_t depth,
                                       const T* panel, std::int64_t panel_row, std::int64_t width, T* sums,
                                       std::int64_t sums_row, bool first, const T* next_panel) {
  const auto& kernels = MicroKernels<T, std::make_integer_sequence<int, kMicroRows>>::of[width > kLanes<T>];
  const std::int64_t parts = (rows + kMicroRows - 1) / kMicroRows, each = rows / parts, longer = rows % parts;
  const bool whole = width % kLanes<T> == 0;
  const auto* ahead = reinterpret_cast<const std::byte*>(next_panel);
  const std::int64_t ahead_step = panel_row * static_cast<std::int64_t>(sizeof(T)) / parts;
  alignas(64) T edge[kMicroRows * kPanel<T>];
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t count = each + (part < longer);
    if (whole) {
      kernels[count - 1](depth, lhs, lhs_row, panel, panel_row, sums, sums_row, first, ahead, ahead_step);
    } else {
      for (std::int64_t i = 0; !first && i < count; ++i)
        for (std::int64_t j = 0; j < width; ++j) edge[i * kPanel<T> + j] = sums[i * sums_row + j];
      kernels[count - 1](depth, lhs, lhs_row, panel, panel_row, edge, kPanel<T>, first, ahead, ahead_step);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < width; ++j) sums[i * sums_row + j] = edge[i * kPanel<T> + j];
    }
    ahead += ahead_step * depth;
    lhs += count * lhs_row, sums += count * sums_row;
  }
}

/// Some vectors of sums of a few rows go on over kDepth rows of the right side, each of which is loaded once.
template <class S, int kDepth, int kVectors> inline void add_products(const typename S::Sum* x, std::int64_t x_row,
                                                                      std::int64_t rows, const typename S::Element* rhs,
                                                                      std::int64_t rhs_row, typename S::Sum* sums,
                                                                      std::int64_t sums_row, bool first) {
  using T = typename S::Sum;
  using V = Vector<T>;
  V lines[kDepth][kVectors];
#pragma GCC unroll 8
  for (int d = 0; d < kDepth; ++d)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) lines[d][v] = load_widened<S>(rhs + d * rhs_row + v * kLanes<T>);
  for (std::int64_t i = 0; i < rows; ++i, x += x_row, sums += sums_row) {
    V acc[kVectors] = {};
#pragma GCC unroll 2
    for (int v = 0; v < kVectors && !first; ++v) acc[v] = load<V>(sums + v * kLanes<T>);
#pragma GCC unroll 8
    for (int d = 0; d < kDepth; ++d)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[v] = fused(splat(x[d]), lines[d][v], acc[v]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(sums + v * kLanes<T>, acc[v]);
  }
}

/// Columns that add_long_rows() computes at a time; fewer do not fill its vectors.
constexpr int kLongRowVectors = kVectorBytes == 64 ? 2 : 1;
template <class T> constexpr std::int64_t kLongRow = kLongRowVectors* kLanes<T>;

/// sums[rows, columns] += (or =) x[rows, k] rhs[k, columns] for a right side whose rows lie in order: it is read once,
/// in stretches of as many columns as have their sums in the first-level cache. Columns that fill no vectors are the
/// end of vectors that begin before them, whose sums are separate.
template <class S> void add_long_rows(const typename S::Sum* x, std::int64_t x_row, std::int64_t rows, std::int64_t k,
                                      const typename S::Element* rhs, std::int64_t rhs_row, std::int64_t columns,
                                      typename S::Sum* sums, std::int64_t sums_row, bool first) {
  using T = typename S::Sum;
  constexpr std::int64_t kSums = (16 << 10) / static_cast<std::int64_t>(sizeof(T));
  alignas(64) T near[kSums];  // rows of the result may lie where they push each other out of a cache
  constexpr int kDepth = 8, kVectors = kLongRowVectors;  // of the 32 or 16 registers
  constexpr std::int64_t kWidth = kLongRow<T>;
  const std::int64_t row = kSums / rows / kWidth * kWidth, stretch = row - kWidth;
  for (std::int64_t begin = 0; begin < columns; begin += stretch) {
    const std::int64_t end = smaller(begin + stretch, columns), whole_end = end - (end - begin) % kWidth;
    const bool has_rest = whole_end != end, overlaps = has_rest && end >= kWidth;
    T* const last = near + (whole_end - begin);  // sums of columns end - kWidth to end
    const std::int64_t separate = (overlaps ? whole_end : end) - begin;
    for (std::int64_t i = 0; !first && i < rows; ++i) {
      copy_row(sums + i * sums_row + begin, separate, near + i * row);
      for (std::int64_t c = 0; overlaps && c < kWidth; ++c) last[i * row + c] = sums[i * sums_row + end - kWidth + c];
    }
    for (std::int64_t p = 0; p < k;) {
      const bool whole = k - p >= kDepth, is_first = first && p == 0;
      const typename S::Element* const from = rhs + p * rhs_row;
      const auto add = [&](const typename S::Element* some, T* to) __attribute__((always_inline)) {
        if (whole)
          add_products<S, kDepth, kVectors>(x + p, x_row, rows, some, rhs_row, to, row, is_first);
        else
          add_products<S, 1, kVectors>(x + p, x_row, rows, some, rhs_row, to, row, is_first);
      };
      for (std::int64_t j = begin; j < whole_end; j += kWidth) add(from + j, near + j - begin);
      if (overlaps) add(from + end - kWidth, last);
      const std::int64_t depth = whole ? kDepth : 1;
      for (std::int64_t i = 0; has_rest && !overlaps && i < rows; ++i)
        for (std::int64_t c = whole_end; c < end; ++c) {
          T sum = is_first ? T{} : near[i * row + c - begin];
          for (std::int64_t d = 0; d < depth; ++d)
            sum = fused(x[i * x_row + p + d], S::widen(from[d * rhs_row + c]), sum);
          near[i * row + c - begin] = sum;
        }
      p += depth;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      copy_row(near + i * row, separate, sums + i * sums_row + begin);
      for (std::int64_t c = whole_end; overlaps && c < end; ++c)
        sums[i * sums_row + c] = last[i * row + c - (end - kWidth)];
    }
  }
}

/// The same for any other right side: what a few rows need of a panel is turned in the first-level cache and used at
/// once.
template <class S> void add_turned_panels(const typename S::Sum* x, std::int64_t x_row, std::int64_t rows,
                                          std::int64_t k, const typename S::Element* rhs, std::int64_t rhs_k,
                                          std::int64_t rhs_column, std::int64_t columns, typename S::Sum* sums,
                                          std::int64_t sums_row, bool first) {
  using T = typename S::Sum;
  constexpr std::int64_t kDepth = 128;
  alignas(64) T panel[kDepth * kPanel<T>];
  for (std::int64_t j = 0; j < columns; j += kPanel<T>) {
    const std::int64_t width = smaller(kPanel<T>, columns - j);
    for (std::int64_t p = 0; p < k; p += kDepth) {
      const std::int64_t depth = smaller(kDepth, k - p);
      pack_panels<S>(rhs + p * rhs_k + j * rhs_column, rhs_k, rhs_column, depth, width, panel, 0);
      multiply_block<T>(x + p, x_row, rows, depth, panel, kPanel<T>, width, sums + j, sums_row, first && p == 0, panel);
    }
  }
}

/// So few rows that reading the right side is most of the work.
template <MatmulStorage kStorage> void multiply_few_rows(const PortableTile& t) {
  using S = Storage<kStorage>;
  using T = typename S::Sum;
  using E = typename S::Element;
  constexpr bool kInPlace = sizeof(E) == sizeof(T);
  constexpr std::int64_t kScratch = kLeftSide<T>, kNear = (176 << 10) / static_cast<std::int64_t>(sizeof(T));
  T* const lhs = static_cast<T*>(t.scratch);
  const std::int64_t sums_row = kInPlace ? t.out_row : round_up(t.columns, kPanel<T>);
  T* const sums = kInPlace ? static_cast<T*>(t.out) : lhs + kScratch + kPanels<T>;
  const std::int64_t step = smaller(t.k, kNear / t.rows - 32), row = round_up(step, 16) + 16;  // as portable_lhs_row
  for (std::int64_t p = 0; p < t.k; p += step) {
    const std::int64_t depth = smaller(step, t.k - p);
    const auto* const rhs = static_cast<const E*>(t.rhs) + p * t.rhs_k;
    copy_matrix<S>(static_cast<const E*>(t.lhs) + p * t.lhs_k, t.lhs_row, t.lhs_k, t.rows, depth, lhs, row);
    if (t.rhs_column == 1 && t.columns >= kLongRow<T>)
      add_long_rows<S>(lhs, row, t.rows, depth, rhs, t.rhs_k, t.columns, sums, sums_row, p == 0);
    else
      add_turned_panels<S>(lhs, row, t.rows, depth, rhs, t.rhs_k, t.rhs_column, t.columns, sums, sums_row, p == 0);
  }
  if constexpr (!kInPlace)
    for (std::int64_t i = 0; i < t.rows; ++i)
      narrow_row<S>(sums + i * sums_row, t.columns, static_cast<E*>(t.out) + i * t.out_row);
}

/// Columns from which on a left side that lies along k is copied all the same: reading it in place meets rows in the
/// same cache sets.
constexpr std::int64_t kColumnsOfCopy = 128;

template <MatmulStorage kStorage> void multiply_tile(const PortableTile& t) {
  using S = Storage<kStorage>;
  using T = typename S::Sum;
  using E = typename S::Element;
  constexpr bool kInPlace = sizeof(E) == sizeof(T);
  constexpr std::int64_t kDepth = portable_depth(sizeof(T)), kLhsRow = portable_lhs_row(sizeof(T));
  if (t.rows <= kFewRows && t.rhs_panels == nullptr) return multiply_few_rows<kStorage>(t);
  const std::int64_t sums_row = kInPlace ? t.out_row : round_up(t.columns, kPanel<T>);
  T* const lhs = static_cast<T*>(t.scratch);
  T* const packed = lhs + kLeftSide<T>;
  T* const sums = kInPlace ? static_cast<T*>(t.out) : packed + kPanels<T>;
  const bool reads_in_place = kInPlace && t.lhs_k == 1 && t.columns < kColumnsOfCopy;
  const std::int64_t most = (t.k + kDepth - 1) / kDepth, step = (t.k + most - 1) / most;
  const std::int64_t columns_together = t.rhs_panels != nullptr ? t.columns : kPortableColumns;
  for (std::int64_t p = 0; p < t.k; p += step) {
    const std::int64_t depth = smaller(step, t.k - p);
    const auto* const rhs = static_cast<const E*>(t.rhs) + p * t.rhs_k;
    for (std::int64_t c = 0; c < t.columns; c += columns_together) {
      const std::int64_t end = smaller(c + columns_together, t.columns);
      if (t.rhs_panels == nullptr)
        pack_panels<S>(rhs + c * t.rhs_column, t.rhs_k, t.rhs_column, depth, end - c, packed,
                       kPanel<T> * panel_rows(depth));
      for (std::int64_t i = 0; i < t.rows; i += kPortableRows) {
        const std::int64_t rows = smaller(kPortableRows, t.rows - i);
        const auto* const source = static_cast<const E*>(t.lhs) + i * t.lhs_row + p * t.lhs_k;
        const T* block = lhs;
        std::int64_t block_row = kLhsRow;
        if (reads_in_place)
          block = reinterpret_cast<const T*>(source), block_row = t.lhs_row;
        else if (c == 0 || t.rows > kPortableRows)
          copy_matrix<S>(source, t.lhs_row, t.lhs_k, rows, depth, lhs, kLhsRow);
        for (std::int64_t j = c; j < end; j += kPanel<T>) {
          const T* panel = t.rhs_panels != nullptr
                               ? static_cast<const T*>(t.rhs_panels) + j * panel_rows(t.k) + p * kPanel<T>
                               : packed + (j - c) * panel_rows(depth);
          const std::int64_t to_next = kPanel<T> * panel_rows(t.rhs_panels != nullptr ? t.k : depth);
          const std::int64_t width = kInPlace ? smaller(kPanel<T>, t.columns - j) : kPanel<T>;
          multiply_block<T>(block, block_row, rows, depth, panel, kPanel<T>, width, sums + i * sums_row + j, sums_row,
                            p == 0, panel + to_next);
        }
      }
    }
  }
  if constexpr (!kInPlace)
    for (std::int64_t i = 0; i < t.rows; ++i)
      narrow_row<S>(sums + i * sums_row, t.columns, static_cast<E*>(t.out) + i * t.out_row);
}

/// libfermata_run has floats, and integers of 32 bits for AVX2: other integers are products that few programs have
/// (matmul_integers.cpp).
#ifdef FERMATA_INFERENCE_ONLY
template <MatmulStorage kStorage> constexpr bool kIsThere = std::is_floating_point_v<typename Storage<kStorage>::Sum> ||
                                                            (kStorage == MatmulStorage::u32 && kVectorBytes == 32);
#else
template <MatmulStorage kStorage> constexpr bool kIsThere = true;
#endif
template <MatmulStorage... kStorages> constexpr PortableKernels make_kernels() {
  PortableKernels made{.vector_bytes = FERMATA_VECTOR_BYTES, .few_rows = kFewRows};
  const auto put = [&]<MatmulStorage kStorage>() {
    constexpr auto at = static_cast<std::size_t>(kStorage);
    made.panel_columns[at] = kPanel<typename Storage<kStorage>::Sum>;
    if constexpr (kIsThere<kStorage>)
      made.pack_rhs[at] = &pack_rhs<kStorage>, made.tile[at] = &multiply_tile<kStorage>,
      made.vector_product[at] = &multiply_vector<kStorage>;
  };
  (put.template operator()<kStorages>(), ...);
  return made;
}
constexpr PortableKernels kernels_of_this_file() {
  return make_kernels<MatmulStorage::u8, MatmulStorage::u16, MatmulStorage::u32, MatmulStorage::u64, MatmulStorage::f16,
                      MatmulStorage::bf16, MatmulStorage::f32, MatmulStorage::f64>();
}

}  // namespace
}  // namespace fermata
