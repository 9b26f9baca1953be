// Fourier transforms of many lines at a time: the loops, compiled once per instruction set (fft_lanes_*.cpp).
//
// Each lane of the vectors belongs to a line of its own. A buffer holds a vector with the real parts of the first
// elements of all lines, one with their imaginary parts, then those of the second elements. Stages are those of
// Stockham (in Swarztrauber, Parallel Computing 5, 1987): from one buffer to another, in order at the end. Nothing is
// contracted and lanes do not meet, so a line has the same bits with any lanes beside it, on every processor.
#pragma once

#include <cstdint>

namespace fermata {

/// Primes up to this one are factors of stages.
inline constexpr std::int64_t kLargestFftFactor = 97;
/// Lanes of f32 in the widest vectors.
inline constexpr std::int64_t kMostFftLanes = 16;

/// Where the parts of the first elements are. An inverse transform is one with both parts exchanged.
template <class T> struct LaneBuffer { T *real, *imaginary; };

template <class T> struct LaneStage {
  std::int64_t radix, left, stride;  // left: how long the transforms still are; stride: elements from one to the next
  const T* roots;   // powers 1 to radix - 1 of root p of `left`, for each p below left / radix, as pairs
  const T* circle;  // all powers of the root of `radix`, as pairs
};

/// Lines of a tensor, as many as there are lanes. Numbers are real, or pairs (`width` 2).
struct LaneLines {
  const std::int64_t* starts;  // in numbers
  std::int64_t stride, count, width;
  std::int64_t lines;  // that exist; the others start where a line does
};

/// What a cosine transform of n numbers is besides a Fourier transform of `size` pairs (dct.cpp). `turns`, pairs, are
/// of the type.
template <class T> struct CosineLine {
  int type;
  std::int64_t n, size;
  const T *roots, *turns, *turns_after;

  /// The Fourier transform is one of real numbers, in pairs.
  bool is_halved() const { return type == 1 || (type != 4 && n % 2 == 0); }
};
/// Its two steps, on rows of as many numbers as there are lanes, or of one.
template <class T> struct CosineSteps {
  /// From rows of numbers to the pairs that are transformed; `other` is overwritten.
  void (*before)(const CosineLine<T>& line, const T* x, T* other, T* z);
  void (*after)(const CosineLine<T>& line, const T* z, T* other, T* y);
};

/// `roots` are pairs. Rows are vectors: that of part c of element k is (k width + c) row.
template <class T> struct FftLanes {
  std::int64_t lanes;
  void (*load)(const T* from, const LaneLines& lines, T* to, std::int64_t row);
  void (*store)(const T* from, std::int64_t row, T* to, const LaneLines& lines);
  void (*stage)(const LaneStage<T>& stage, std::int64_t n, LaneBuffer<T> x, LaneBuffer<T> y);
  /// y = x times a number for each element, or for each element and lane.
  void (*multiply)(LaneBuffer<T> x, const T* numbers, std::int64_t n, LaneBuffer<T> y);
  void (*multiply_lanes)(LaneBuffer<T> x, const T* numbers, std::int64_t n, LaneBuffer<T> y);
  /// From the transform z of n pairs of real numbers to the n + 1 numbers of the transform of all 2 n; and back, times
  /// two. `roots` are the first n of 2 n.
  void (*to_real)(const T* z, std::int64_t n, const T* roots, T* y);
  void (*from_real)(const T* y, std::int64_t n, const T* roots, T* z);
  /// The same of one line of pairs.
  void (*line_to_real)(const T* z, std::int64_t n, const T* roots, T* y);
  void (*line_from_real)(const T* y, std::int64_t n, const T* roots, T* z);
  CosineSteps<T> cosines, line_cosines;
};

struct FftLaneKernels {
  FftLanes<float> f32;
  FftLanes<double> f64;
};
extern const FftLaneKernels kFftLanesBaseline;
#if defined(__x86_64__)
extern const FftLaneKernels kFftLanesAvx2;
extern const FftLaneKernels kFftLanesAvx512;
#endif

}  // namespace fermata
