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
#include <type_traits>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/transpose_in_registers.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

constexpr std::int64_t kVectorBytes = FERMATA_VECTOR_BYTES, kMicroRows = FERMATA_MICRO_ROWS;

template <class T> struct VectorOf;
template <> struct VectorOf<float> { typedef float type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <> struct VectorOf<double> { typedef double type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <> struct VectorOf<std::uint32_t> {
  typedef std::uint32_t type __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
};
template <> struct VectorOf<std::uint64_t> {
  typedef std::uint64_t type __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
};
template <class T> using Vector = typename VectorOf<T>::type;
template <class T> constexpr std::int64_t kLanes = kVectorBytes / static_cast<std::int64_t>(sizeof(T));

/// a * b + c, rounded once.
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline std::uint32_t fused(std::uint32_t a, std::uint32_t b, std::uint32_t c) { return a * b + c; }
inline std::uint64_t fused(std::uint64_t a, std::uint64_t b, std::uint64_t c) { return a * b + c; }
inline Vector<std::uint32_t> fused(Vector<std::uint32_t> a, Vector<std::uint32_t> b, Vector<std::uint32_t> c) {
  return a * b + c;
}
inline Vector<std::uint64_t> fused(Vector<std::uint64_t> a, Vector<std::uint64_t> b, Vector<std::uint64_t> c) {
  return a * b + c;
}
#if defined(__AVX512F__)
inline Vector<float> fused(Vector<float> a, Vector<float> b, Vector<float> c) { return _mm512_fmadd_ps(a, b, c); }
inline Vector<double> fused(Vector<double> a, Vector<double> b, Vector<double> c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__FMA__)
inline Vector<float> fused(Vector<float> a, Vector<float> b, Vector<float> c) { return _mm256_fmadd_ps(a, b, c); }
inline Vector<double> fused(Vector<double> a, Vector<double> b, Vector<double> c) { return _mm256_fmadd_pd(a, b, c); }
#else
template <class V> inline V fused_lanes(V a, V b, V c) {
  for (std::size_t i = 0; i < sizeof(V) / sizeof(a[0]); ++i) c[i] = fused(a[i], b[i], c[i]);
  return c;
}
inline Vector<float> fused(Vector<float> a, Vector<float> b, Vector<float> c) { return fused_lanes(a, b, c); }
inline Vector<double> fused(Vector<double> a, Vector<double> b, Vector<double> c) { return fused_lanes(a, b, c); }
#endif

template <class V> inline V load(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}
template <class V> inline void store(void* to, V v) { __builtin_memcpy(to, &v, sizeof(V)); }
template <class T> inline Vector<T> splat(T x) { return x - Vector<T>{}; }

/// What a storage holds, the type its sums have, and the way there and back.
template <MatmulStorage> struct Storage;
template <class E, class S> struct PlainStorage {
  using Element = E;
  using Sum = S;
  static S widen(E x) { return x; }
  static E narrow(S x) { return static_cast<E>(x); }
};
template <> struct Storage<MatmulStorage::u8> : PlainStorage<std::uint8_t, std::uint32_t> {};
template <> struct Storage<MatmulStorage::u16> : PlainStorage<std::uint16_t, std::uint32_t> {};
template <> struct Storage<MatmulStorage::u32> : PlainStorage<std::uint32_t, std::uint32_t> {};
template <> struct Storage<MatmulStorage::u64> : PlainStorage<std::uint64_t, std::uint64_t> {};
template <> struct Storage<MatmulStorage::f32> : PlainStorage<float, float> {};
template <> struct Storage<MatmulStorage::f64> : PlainStorage<double, double> {};
template <> struct Storage<MatmulStorage::f16> {
  using Element = std::uint16_t;
  using Sum = float;
  static float widen(std::uint16_t x) { return widen_float16(x); }
  static std::uint16_t narrow(float x) { return narrow_float16(x); }
};
template <> struct Storage<MatmulStorage::bf16> {
  using Element = std::uint16_t;
  using Sum = float;
  static float widen(std::uint16_t x) { return widen_bfloat16(x); }
  static std::uint16_t narrow(float x) { return narrow_bfloat16(x); }
};

inline std::int64_t round_up(std::int64_t x, std::int64_t step) { return (x + step - 1) / step * step; }
inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Columns of a panel of the right side.
template <class T> constexpr std::int64_t kPanel = 2 * kLanes<T>;
/// Elements of a tile's scratch memory for its left side, and for panels of its own.
template <class T> constexpr std::int64_t kLeftSide = kPortableRows* portable_lhs_row(sizeof(T));
template <class T> constexpr std::int64_t kPanels = portable_depth(sizeof(T)) * kPortableColumns;

// ---- Copies
// -----------------------------------------------------------------------------------------------------------

template <class S> inline Vector<typename S::Sum> load_widened(const typename S::Element* from) {
  using T = typename S::Sum;
  if constexpr (sizeof(typename S::Element) == sizeof(T)) {
    return load<Vector<T>>(from);
  } else {
    T wide[kLanes<T>];
    for (std::int64_t i = 0; i < kLanes<T>; ++i) wide[i] = S::widen(from[i]);
    return load<Vector<T>>(wide);
  }
}

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
  if (column == 1 || row != 1) {
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
                 static_cast<typename S::Sum*>(r.panels), kPanel<typename S::Sum> * r.k);
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

/// sums[rows, columns] += (or =) x[rows, k] rhs[k, columns] for a right side whose rows lie in order: it is read once,
/// in stretches of as many columns as have their sums in the first-level cache. Columns that fill no vectors are the
/// end of vectors that begin before them, whose sums are kept apart.
template <class S> void add_long_rows(const typename S::Sum* x, std::int64_t x_row, std::int64_t rows, std::int64_t k,
                                      const typename S::Element* rhs, std::int64_t rhs_row, std::int64_t columns,
                                      typename S::Sum* sums, std::int64_t sums_row, bool first) {
  using T = typename S::Sum;
  constexpr std::int64_t kSums = (16 << 10) / static_cast<std::int64_t>(sizeof(T));
  alignas(64) T near[kSums];  // rows of the result may lie where they push each other out of a cache
  constexpr int kDepth = 8, kVectors = kVectorBytes == 64 ? 2 : 1;  // of the 32 or 16 registers
  constexpr std::int64_t kWidth = kVectors * kLanes<T>;
  const std::int64_t row = kSums / rows / kWidth * kWidth, stretch = row - kWidth;
  for (std::int64_t begin = 0; begin < columns; begin += stretch) {
    const std::int64_t end = smaller(begin + stretch, columns), whole_end = end - (end - begin) % kWidth;
    const bool has_rest = whole_end != end, overlaps = has_rest && end >= kWidth;
    T* const last = near + (whole_end - begin);  // sums of columns end - kWidth to end
    for (std::int64_t i = 0; !first && i < rows; ++i) {
      for (std::int64_t c = begin; c < (overlaps ? whole_end : end); ++c)
        near[i * row + c - begin] = sums[i * sums_row + c];
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
      for (std::int64_t c = begin; c < (overlaps ? whole_end : end); ++c)
        sums[i * sums_row + c] = near[i * row + c - begin];
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
    if (t.rhs_column == 1)
      add_long_rows<S>(lhs, row, t.rows, depth, rhs, t.rhs_k, t.columns, sums, sums_row, p == 0);
    else
      add_turned_panels<S>(lhs, row, t.rows, depth, rhs, t.rhs_k, t.rhs_column, t.columns, sums, sums_row, p == 0);
  }
  if constexpr (!kInPlace)
    for (std::int64_t i = 0; i < t.rows; ++i)
      for (std::int64_t j = 0; j < t.columns; ++j)
        static_cast<E*>(t.out)[i * t.out_row + j] = S::narrow(sums[i * sums_row + j]);
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
  if (t.rows <= kPortableFewRows && t.rhs_panels == nullptr) return multiply_few_rows<kStorage>(t);
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
        pack_panels<S>(rhs + c * t.rhs_column, t.rhs_k, t.rhs_column, depth, end - c, packed, kPanel<T> * depth);
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
          const T* panel = t.rhs_panels != nullptr ? static_cast<const T*>(t.rhs_panels) + j * t.k + p * kPanel<T>
                                                   : packed + (j - c) * depth;
          const std::int64_t to_next = kPanel<T> * (t.rhs_panels != nullptr ? t.k : depth);
          const std::int64_t width = kInPlace ? smaller(kPanel<T>, t.columns - j) : kPanel<T>;
          multiply_block<T>(block, block_row, rows, depth, panel, kPanel<T>, width, sums + i * sums_row + j, sums_row,
                            p == 0, panel + to_next);
        }
      }
    }
  }
  if constexpr (!kInPlace)
    for (std::int64_t i = 0; i < t.rows; ++i)
      for (std::int64_t j = 0; j < t.columns; ++j)
        static_cast<E*>(t.out)[i * t.out_row + j] = S::narrow(sums[i * sums_row + j]);
}

/// Bytes that rows are asked for ahead, as a product with a vector reads a matrix but once: processors by themselves
/// stop at the end of a page. 4096^2 of f32 on Zen 5: 1750 us without, 1240 with.
constexpr std::int64_t kAhead = 8192, kLine = 64;

/// sums[j] continues its chain over four rows of the matrix, then single ones.
template <class S> void add_rows(const typename S::Sum* x, const typename S::Element* matrix, std::int64_t row,
                                 std::int64_t k, typename S::Sum* sums, std::int64_t columns) {
  constexpr std::int64_t kElement = sizeof(typename S::Element);
  // Of wide rows the next four are found ahead by processors themselves.
  const bool is_narrow = columns * kElement <= kAhead / 16;
  const std::int64_t ahead = is_narrow ? kAhead / (columns * kElement) * row : 0;
  std::int64_t p = 0;
  for (; p + 4 <= k; p += 4, matrix += 4 * row) {
    if (is_narrow)
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t j = 0; j < columns; j += kLine / kElement) __builtin_prefetch(matrix + ahead + i * row + j);
    for (std::int64_t j = 0; j < columns; ++j) {
      typename S::Sum sum = fused(x[p], S::widen(matrix[j]), sums[j]);
      sum = fused(x[p + 1], S::widen(matrix[row + j]), sum);
      sum = fused(x[p + 2], S::widen(matrix[2 * row + j]), sum);
      sums[j] = fused(x[p + 3], S::widen(matrix[3 * row + j]), sum);
    }
  }
  for (; p < k; ++p, matrix += row)
    for (std::int64_t j = 0; j < columns; ++j) sums[j] = fused(x[p], S::widen(matrix[j]), sums[j]);
}

template <std::int64_t kBy, class V, std::size_t... I> inline V rotated(V v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, static_cast<int>((I + kBy) % sizeof...(I))...);
}
/// The sum of all lanes, by halves.
template <class T, std::int64_t kHalf = kLanes<T> / 2> inline T sum_of_lanes(Vector<T> v) {
  if constexpr (kHalf == 0)
    return v[0];
  else
    return sum_of_lanes<T, kHalf / 2>(v + rotated<kHalf>(v, std::make_index_sequence<kLanes<T>>()));
}

/// sums[r] = sum over p of x[r, p] y[p] for a few rows of x. Element p goes to chain p % 64; chains are merged by
/// halves. `ask` says where the next elements lie. Of several rows, some chains of all are done together, then the next
/// ones: so each element of y is loaded once.
template <class S, int kRows, class Ask> inline void dots(const typename S::Sum* x, std::int64_t x_row,
                                                          const typename S::Element* y, std::int64_t k, const Ask& ask,
                                                          typename S::Sum* sums) {
  using T = typename S::Sum;
  using V = Vector<T>;
  constexpr int kVectors = kHalvesChains / kLanes<T>, kTogether = kRows == 1 || kVectors < 4 ? kVectors : 4;
  const std::int64_t whole = k / kHalvesChains * kHalvesChains;
  T end[kHalvesChains];  // x is padded with zeros
  for (std::int64_t i = 0; i < kHalvesChains && whole != k; ++i) end[i] = whole + i < k ? S::widen(y[whole + i]) : T{};
  V merged[kRows][kVectors];
#pragma GCC unroll 16
  for (int first = 0; first < kVectors; first += kTogether) {
    V acc[kRows][kTogether];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kTogether; ++v) acc[r][v] = V{};  // GCC clears a whole array by a slow instruction
    const auto add = [&](const T* a, const auto* b) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int v = 0; v < kTogether; ++v) {
        const std::int64_t at = (first + v) * kLanes<T>;
        V line;
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*b)>, T>)
          line = load<V>(b + at);
        else
          line = load_widened<S>(b + at);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) acc[r][v] = fused(load<V>(a + r * x_row + at), line, acc[r][v]);
      }
    };
    for (std::int64_t p = 0; p < whole; p += kHalvesChains) {
      if (first == 0) ask(y + p);
      add(x + p, y + p);
    }
    if (whole != k) add(x + whole, end);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kTogether; ++v) merged[r][first + v] = acc[r][v];
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int half = kVectors / 2; half > 0; half /= 2)
#pragma GCC unroll 16
      for (int v = 0; v < half; ++v) merged[r][v] = merged[r][v] + merged[r][v + half];
    sums[r] = sum_of_lanes<T>(merged[r][0]);
  }
}

/// All vectors with some columns, which stay in the first-level cache meanwhile, then with the next ones.
template <class S>
void multiply_by_halves(const PortableVectorProduct& v, const typename S::Sum* x, std::int64_t x_row) {
  using T = typename S::Sum;
  using E = typename S::Element;
  constexpr std::int64_t kElement = sizeof(E), kNear = (16 << 10) / kElement;
  const bool is_dense = v.matrix_column <= v.k + kLine;
  const std::int64_t ahead = is_dense ? kAhead / kElement : 0;
  const auto ask = [ahead](const E* from) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < kHalvesChains; i += kLine / kElement) __builtin_prefetch(from + ahead + i);
  };
  const auto has_it = [](const E*) {};
  const std::int64_t together = v.vectors <= 3 ? v.columns : kNear / v.k > 1 ? kNear / v.k : 1;
  for (std::int64_t begin = 0; begin < v.columns; begin += together) {
    const std::int64_t end = smaller(begin + together, v.columns);
    for (std::int64_t r = 0; r < v.vectors;) {
      const std::int64_t left = v.vectors - r, rows = left == 4 ? 2 : smaller(left, 3);
      for (std::int64_t j = begin; j < end; ++j) {
        const E* const y = static_cast<const E*>(v.matrix) + j * v.matrix_column;
        T sums[3];
        const auto add = [&](const auto& asks) __attribute__((always_inline)) {
          if (rows == 1)
            dots<S, 1>(x + r * x_row, x_row, y, v.k, asks, sums);
          else if (rows == 2)
            dots<S, 2>(x + r * x_row, x_row, y, v.k, asks, sums);
          else
            dots<S, 3>(x + r * x_row, x_row, y, v.k, asks, sums);
        };
        if (r == 0)
          add(ask);
        else
          add(has_it);
        for (std::int64_t i = 0; i < rows; ++i)
          static_cast<E*>(v.out)[(r + i) * v.out_vector + j * v.out_column] = S::narrow(sums[i]);
      }
      r += rows;
    }
  }
}

template <MatmulStorage kStorage> void multiply_vector(const PortableVectorProduct& v) {
  using S = Storage<kStorage>;
  using T = typename S::Sum;
  using E = typename S::Element;
  const auto* const matrix = static_cast<const E*>(v.matrix);
  T* const sums = static_cast<T*>(v.scratch);
  T* const x = sums + kVectorColumns;
  const std::int64_t x_row = round_up(v.k, kHalvesChains);
  for (std::int64_t r = 0; r < v.vectors; ++r) {
    const E* const vector = static_cast<const E*>(v.vector) + r * v.to_next_vector;
    for (std::int64_t p = 0; p < v.k; ++p) x[r * x_row + p] = S::widen(vector[p * v.vector_stride]);
    for (std::int64_t p = v.k; p < x_row; ++p) x[r * x_row + p] = 0;
  }
  if (v.by_halves) return multiply_by_halves<S>(v, x, x_row);
  E* const out = static_cast<E*>(v.out);
  for (std::int64_t j = 0; j < v.columns; j += kVectorColumns) {
    const std::int64_t columns = smaller(kVectorColumns, v.columns - j);
    for (std::int64_t i = 0; i < columns; ++i) sums[i] = 0;
    add_rows<S>(x, matrix + j, v.matrix_k, v.k, sums, columns);
    for (std::int64_t i = 0; i < columns; ++i) out[(j + i) * v.out_column] = S::narrow(sums[i]);
  }
}

template <MatmulStorage... kStorages> constexpr PortableKernels make_kernels() {
  return {{pack_rhs<kStorages>...},
          {multiply_tile<kStorages>...},
          {multiply_vector<kStorages>...},
          {kPanel<typename Storage<kStorages>::Sum>...},
          FERMATA_VECTOR_BYTES};
}
constexpr PortableKernels kernels_of_this_file() {
  return make_kernels<MatmulStorage::u8, MatmulStorage::u16, MatmulStorage::u32, MatmulStorage::u64, MatmulStorage::f16,
                      MatmulStorage::bf16, MatmulStorage::f32, MatmulStorage::f64>();
}

}  // namespace
}  // namespace fermata
