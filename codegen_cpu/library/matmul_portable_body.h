// The body of matmul_portable_*.cpp, for vectors of kVectorBytes and tiles of kMicroRows rows by two vectors.
//
// The includer defines FERMATA_VECTOR_BYTES and FERMATA_MICRO_ROWS. Everything here has internal linkage and nothing of
// the standard library is called: a function shared with other files could run there with instructions the machine
// lacks.
//
// The scheme is that of Goto and van de Geijn (TOMS 34, 2008): both operands are packed into panels that the innermost
// kernel reads straight through, widened to the type of the sums on the way.
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

constexpr std::int64_t kVectorBytes = FERMATA_VECTOR_BYTES, kMicroRows = FERMATA_MICRO_ROWS;
static_assert(kPortableRows % kMicroRows == 0);

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

template <class T> struct FourOf { typedef T type __attribute__((vector_size(4 * sizeof(T)))); };

/// Four rows that are contiguous along k, turned: to[p * kWidth + i] = from[i * along + p].
template <class S, std::int64_t kWidth>
void pack_four_rows(const typename S::Element* from, std::int64_t along, std::int64_t k, typename S::Sum* to) {
  using T = typename S::Sum;
  using Four = typename FourOf<T>::type;
  const auto row = [&](std::int64_t i, std::int64_t p) {
    const auto* const x = from + i * along + p;
    return Four{S::widen(x[0]), S::widen(x[1]), S::widen(x[2]), S::widen(x[3])};
  };
  std::int64_t p = 0;
  for (; p + 4 <= k; p += 4) {
    const Four a = row(0, p), b = row(1, p), c = row(2, p), d = row(3, p);
    const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store(to + p * kWidth, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store(to + (p + 1) * kWidth, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store(to + (p + 2) * kWidth, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store(to + (p + 3) * kWidth, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
  for (; p < k; ++p)
    for (std::int64_t i = 0; i < 4; ++i) to[p * kWidth + i] = S::widen(from[i * along + p]);
}

/// to[panel][p][i] = from[(panel * kWidth + i) * along + p * k_stride], zero where there is no such row.
template <class S, std::int64_t kWidth> void pack(const typename S::Element* from, std::int64_t along,
                                                  std::int64_t k_stride, std::int64_t count, std::int64_t k,
                                                  typename S::Sum* to) {
  for (std::int64_t first = 0; first < count; first += kWidth, to += kWidth * k) {
    const std::int64_t width = smaller(kWidth, count - first);
    const typename S::Element* const source = from + first * along;
    if (along == 1 && width == kWidth) {
      for (std::int64_t p = 0; p < k; ++p)
        for (std::int64_t i = 0; i < kWidth; ++i) to[p * kWidth + i] = S::widen(source[p * k_stride + i]);
      continue;
    }
    std::int64_t i = 0;
    for (; k_stride == 1 && i + 4 <= width; i += 4) pack_four_rows<S, kWidth>(source + i * along, along, k, to + i);
    for (; i < width; ++i)
      for (std::int64_t p = 0; p < k; ++p) to[p * kWidth + i] = S::widen(source[i * along + p * k_stride]);
    for (; i < kWidth; ++i)
      for (std::int64_t p = 0; p < k; ++p) to[p * kWidth + i] = 0;
  }
}

/// sums[kMicroRows, two vectors] += (or =, on the first step through k) a panel of each side.
template <class T>
void multiply_panels(std::int64_t k, const T* a, const T* b, T* sums, std::int64_t sums_row, bool first) {
  using V = Vector<T>;
  V acc[kMicroRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kMicroRows; ++i) {
    acc[i][0] = first ? V{} : load<V>(sums + i * sums_row);
    acc[i][1] = first ? V{} : load<V>(sums + i * sums_row + kLanes<T>);
  }
  for (std::int64_t p = 0; p < k; ++p, a += kMicroRows, b += 2 * kLanes<T>) {
    const V b0 = load<V>(b), b1 = load<V>(b + kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kMicroRows; ++i) {
      const V x = splat(a[i]);
      acc[i][0] = fused(x, b0, acc[i][0]);
      acc[i][1] = fused(x, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kMicroRows; ++i) {
    store(sums + i * sums_row, acc[i][0]);
    store(sums + i * sums_row + kLanes<T>, acc[i][1]);
  }
}

template <MatmulStorage kStorage> void multiply_tile(const PortableTile& t) {
  using S = Storage<kStorage>;
  using T = typename S::Sum;
  using E = typename S::Element;
  constexpr std::int64_t kWidth = 2 * kLanes<T>;
  const std::int64_t sums_row = round_up(t.columns, kWidth);
  T* const sums = static_cast<T*>(t.scratch);
  T* const lhs_panels = sums + kPortableRows * portable_columns(kStorage);
  T* const rhs_panels = lhs_panels + kPortableRows * kPortableDepth;
  for (std::int64_t p = 0; p < t.k; p += kPortableDepth) {
    const std::int64_t depth = smaller(kPortableDepth, t.k - p);
    pack<S, kMicroRows>(static_cast<const E*>(t.lhs) + p * t.lhs_k, t.lhs_row, t.lhs_k, t.rows, depth, lhs_panels);
    pack<S, kWidth>(static_cast<const E*>(t.rhs) + p * t.rhs_k, t.rhs_column, t.rhs_k, t.columns, depth, rhs_panels);
    for (std::int64_t j = 0; j < t.columns; j += kWidth)
      for (std::int64_t i = 0; i < t.rows; i += kMicroRows)
        multiply_panels<T>(depth, lhs_panels + i * depth, rhs_panels + j * depth, sums + i * sums_row + j, sums_row,
                           p == 0);
  }
  for (std::int64_t i = 0; i < t.rows; ++i)
    for (std::int64_t j = 0; j < t.columns; ++j)
      static_cast<E*>(t.out)[i * t.out_row + j] = S::narrow(sums[i * sums_row + j]);
}

/// sums[j] continues its chain over four rows of the matrix, then single ones.
template <class S> void add_rows(const typename S::Sum* x, const typename S::Element* matrix, std::int64_t row,
                                 std::int64_t k, typename S::Sum* sums, std::int64_t columns) {
  std::int64_t p = 0;
  for (; p + 4 <= k; p += 4, matrix += 4 * row)
    for (std::int64_t j = 0; j < columns; ++j) {
      typename S::Sum sum = fused(x[p], S::widen(matrix[j]), sums[j]);
      sum = fused(x[p + 1], S::widen(matrix[row + j]), sum);
      sum = fused(x[p + 2], S::widen(matrix[2 * row + j]), sum);
      sums[j] = fused(x[p + 3], S::widen(matrix[3 * row + j]), sum);
    }
  for (; p < k; ++p, matrix += row)
    for (std::int64_t j = 0; j < columns; ++j) sums[j] = fused(x[p], S::widen(matrix[j]), sums[j]);
}

/// Element p goes to chain p % 64; chains are merged by halves.
template <class S> typename S::Sum dot(const typename S::Sum* x, const typename S::Element* y, std::int64_t k) {
  using T = typename S::Sum;
  constexpr std::int64_t kChains = 64, kVectors = kChains / kLanes<T>;
  Vector<T> acc[kVectors] = {};
  T wide[kChains];
  const auto add = [&](const T* a) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      acc[v] = fused(load<Vector<T>>(a + v * kLanes<T>), load<Vector<T>>(wide + v * kLanes<T>), acc[v]);
  };
  std::int64_t p = 0;
  for (; p + kChains <= k; p += kChains) {
    for (std::int64_t i = 0; i < kChains; ++i) wide[i] = S::widen(y[p + i]);
    add(x + p);
  }
  if (p < k) {  // x is padded with zeros
    for (std::int64_t i = 0; i < kChains; ++i) wide[i] = p + i < k ? S::widen(y[p + i]) : T{};
    add(x + p);
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) store(wide + v * kLanes<T>, acc[v]);
  for (std::int64_t half = kChains / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) wide[i] += wide[i + half];
  return wide[0];
}

template <MatmulStorage kStorage> void multiply_vector(const PortableVectorProduct& v) {
  using S = Storage<kStorage>;
  using T = typename S::Sum;
  using E = typename S::Element;
  const auto* const vector = static_cast<const E*>(v.vector);
  const auto* const matrix = static_cast<const E*>(v.matrix);
  T* const sums = static_cast<T*>(v.scratch);
  T* const x = sums + kVectorColumns;
  for (std::int64_t p = 0; p < v.k; ++p) x[p] = S::widen(vector[p * v.vector_stride]);
  for (std::int64_t p = v.k; p < round_up(v.k, 64); ++p) x[p] = 0;
  E* const out = static_cast<E*>(v.out);
  if (v.matrix_column != 1 || v.matrix_k == 1) {
    for (std::int64_t j = 0; j < v.columns; ++j) out[j] = S::narrow(dot<S>(x, matrix + j * v.matrix_column, v.k));
    return;
  }
  for (std::int64_t j = 0; j < v.columns; j += kVectorColumns) {
    const std::int64_t columns = smaller(kVectorColumns, v.columns - j);
    for (std::int64_t i = 0; i < columns; ++i) sums[i] = 0;
    add_rows<S>(x, matrix + j, v.matrix_k, v.k, sums, columns);
    for (std::int64_t i = 0; i < columns; ++i) out[j + i] = S::narrow(sums[i]);
  }
}

template <MatmulStorage... kStorages> constexpr PortableKernels make_kernels(double multiply_adds_per_ns) {
  return {{multiply_tile<kStorages>...}, {multiply_vector<kStorages>...}, multiply_adds_per_ns};
}
constexpr PortableKernels kernels_of_this_file(double multiply_adds_per_ns) {
  return make_kernels<MatmulStorage::u8, MatmulStorage::u16, MatmulStorage::u32, MatmulStorage::u64, MatmulStorage::f16,
                      MatmulStorage::bf16, MatmulStorage::f32, MatmulStorage::f64>(multiply_adds_per_ns);
}

}  // namespace
}  // namespace fermata
