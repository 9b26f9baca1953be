// Vectors of kVectorBytes, and how elements of each storage become what sums are made of. Part of
// matmul_portable_body.h, whose rules hold here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "codegen_cpu/irregular/narrow_float.h"
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

/// As many elements as a vector of sums has, and their bits in 32.
template <class E, class S> struct PartOf { typedef E type __attribute__((vector_size(sizeof(E) * kLanes<S>))); };
template <class E, class S> using Part = typename PartOf<E, S>::type;
using Floats = Vector<float>;
using FloatBits = Vector<std::uint32_t>;

#if defined(__AVX512F__)
constexpr __mmask16 kAllLanes = 0xffff;  // GCC 12 warns about undefined operands of intrinsics without a mask
#endif

/// What a storage holds, the type its sums have, and the way there and back, of numbers and of vectors.
template <MatmulStorage> struct Storage;
template <class E, class S> struct PlainStorage {
  using Element = E;
  using Sum = S;
  static S widen(E x) { return x; }
  static E narrow(S x) { return static_cast<E>(x); }
  static Vector<S> widen(Part<E, S> x) { return __builtin_convertvector(x, Vector<S>); }
  static Part<E, S> narrow(Vector<S> x) { return __builtin_convertvector(x, Part<E, S>); }
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
  using Halves = Part<std::uint16_t, float>;
#if defined(__F16C__)
  static float widen(std::uint16_t x) { return _cvtsh_ss(x); }
  static std::uint16_t narrow(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
  static float widen(std::uint16_t x) { return widen_float16(x); }
  static std::uint16_t narrow(float x) { return narrow_float16(x); }
#endif
#if defined(__AVX512F__)
  static Floats widen(Halves x) { return _mm512_maskz_cvtph_ps(kAllLanes, reinterpret_cast<__m256i>(x)); }
  static Halves narrow(Floats x) {
    return reinterpret_cast<Halves>(_mm512_maskz_cvtps_ph(kAllLanes, x, _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  static Floats widen(Halves x) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(x)); }
  static Halves narrow(Floats x) { return reinterpret_cast<Halves>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
#else
  static Floats widen(Halves x) {
    Floats wide;
    for (int i = 0; i < kLanes<float>; ++i) wide[i] = widen_float16(x[i]);
    return wide;
  }
  static Halves narrow(Floats x) {
    Halves halves;
    for (int i = 0; i < kLanes<float>; ++i) halves[i] = narrow_float16(x[i]);
    return halves;
  }
#endif
};
template <> struct Storage<MatmulStorage::bf16> {
  using Element = std::uint16_t;
  using Sum = float;
  using Halves = Part<std::uint16_t, float>;
  static float widen(std::uint16_t x) { return widen_bfloat16(x); }
  static std::uint16_t narrow(float x) { return narrow_bfloat16(x); }
#if defined(__AVX512F__)  // GCC 12 converts halves of a vector
  static Floats widen(Halves x) {
    return reinterpret_cast<Floats>(
        _mm512_maskz_slli_epi32(kAllLanes, _mm512_maskz_cvtepu16_epi32(kAllLanes, reinterpret_cast<__m256i>(x)), 16));
  }
#else
  static Floats widen(Halves x) { return reinterpret_cast<Floats>(__builtin_convertvector(x, FloatBits) << 16); }
#endif
  static Halves narrow(Floats x) {
    const auto bits = reinterpret_cast<FloatBits>(x);
    const FloatBits rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, nan = bits >> 16 | 0x40u;
    return __builtin_convertvector(x != x ? nan : rounded, Halves);
  }
};

template <class S> inline Vector<typename S::Sum> load_widened(const typename S::Element* from) {
  using T = typename S::Sum;
  if constexpr (sizeof(typename S::Element) == sizeof(T)) {
    return load<Vector<T>>(from);
  } else {
    return S::widen(load<Part<typename S::Element, T>>(from));
  }
}

/// to[i] = from[i]
template <class S> inline void widen_row(const typename S::Element* from, std::int64_t count, typename S::Sum* to) {
  constexpr std::int64_t kSide = kLanes<typename S::Sum>;
  std::int64_t i = 0;
  for (; i + kSide <= count; i += kSide) store(to + i, load_widened<S>(from + i));
  for (; i < count; ++i) to[i] = S::widen(from[i]);
}
template <class S> inline void narrow_row(const typename S::Sum* from, std::int64_t count, typename S::Element* to) {
  using T = typename S::Sum;
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store(to + i, S::narrow(load<Vector<T>>(from + i)));
  for (; i < count; ++i) to[i] = S::narrow(from[i]);
}
template <class T> inline void copy_row(const T* from, std::int64_t count, T* to) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store(to + i, load<Vector<T>>(from + i));
  for (; i < count; ++i) to[i] = from[i];
}

inline std::int64_t round_up(std::int64_t x, std::int64_t step) { return (x + step - 1) / step * step; }
inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

}  // namespace
}  // namespace fermata
