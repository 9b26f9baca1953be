// Fourier transforms of f32 whose length is a power of two: the loops, compiled once per instruction set
// (fft_kernels_*.cpp).
//
// Real and imaginary parts lie apart. Stages are those of Stockham (in Swarztrauber, Parallel Computing 5, 1987): from
// one buffer to another, in order at the end. Nothing is contracted, so bits are the same on every processor.
#pragma once

#include <cstdint>

namespace fermata {

/// Shorter ones do not fill vectors.
inline constexpr std::int64_t kLeastFft = 64;
/// Strides below this are within a vector.
inline constexpr std::int64_t kWideFftStride = 16;

struct ComplexLine {
  float *real, *imaginary;
};

/// One stage: `left` is how long the transforms still are, `stride` how far apart their elements lie.
struct FftStage {
  std::int64_t left, stride;
  // Of the powers 1, 2, 3 of each root, real and imaginary. Below kWideFftStride six arrays, each a quarter of the
  // length; else six numbers for each root. Null in the stage of two elements.
  const float* roots;
};

struct FftKernels {
  /// y = stage of x, both of n elements.
  void (*stage)(const FftStage& stage, std::int64_t n, ComplexLine x, ComplexLine y);
  /// Pairs of numbers that lie side by side, and n of each apart.
  void (*split_pairs)(const float* pairs, std::int64_t n, ComplexLine to);
  void (*join_pairs)(ComplexLine from, std::int64_t n, float* pairs);
  /// From the transform z of n pairs of real numbers to the n + 1 numbers of the transform of all 2 n, as pairs; and
  /// back, times two. `roots` are the first n of 2 n.
  void (*to_real)(ComplexLine z, std::int64_t n, ComplexLine roots, float* pairs);
  void (*from_real)(const float* pairs, std::int64_t n, ComplexLine roots, ComplexLine z);
};
extern const FftKernels kFftBaseline;
#if defined(__x86_64__)
extern const FftKernels kFftAvx2;
extern const FftKernels kFftAvx512;
#endif

}  // namespace fermata
