// Convolutions of one plane with one filter: the loops, compiled once per instruction set
// (convolution_depthwise_*.cpp).
//
// Rows are copied with their padding, each place of a step apart, so that every tap reads whole vectors. Products are
// added up tap by tap; nothing is contracted, so bits are the same on every processor.
#pragma once

#include <cstdint>

namespace fermata {

template <class T> struct DepthwisePlane {
  const T* from;  // rows of adjacent elements
  std::int64_t from_row, height, width;
  T* to;  // dense
  std::int64_t rows, columns;
  const T* taps;                                             // dense, `window` rows and columns
  std::int64_t window[2], step[2], dilation[2], padding[2];  // padding may be negative
};

template <class T> using DepthwiseKernel = void (*)(const DepthwisePlane<T>& plane, T* room);
struct DepthwiseKernels {
  DepthwiseKernel<float> f32;
  DepthwiseKernel<double> f64;
};
extern const DepthwiseKernels kDepthwiseBaseline;
#if defined(__x86_64__)
extern const DepthwiseKernels kDepthwiseAvx2;
extern const DepthwiseKernels kDepthwiseAvx512;
#endif

/// Vectors of the result whose sums are made together: of as many rows, or of one row where there is no other.
inline constexpr std::int64_t kDepthwiseVectors = 4;
/// What `results` rows of the result need is copied: `rows` rows, `row` elements apart, in which the elements that a
/// tap reads lie side by side, `phase` elements for each place within a step.
struct DepthwiseBlock {
  template <class T> explicit DepthwiseBlock(const DepthwisePlane<T>& p)
      : results(p.rows == 1 ? 1 : kDepthwiseVectors),
        rows((results - 1) * p.step[0] + (p.window[0] - 1) * p.dilation[0] + 1),
        phase(p.columns + (p.window[1] - 1) * p.dilation[1] / p.step[1] + kWidest * (kDepthwiseVectors + 1 - results)),
        row(phase * p.step[1]),
        columns_between(p.dilation[1] / p.step[1]),
        phases_between(p.dilation[1] % p.step[1]) {}
  static constexpr std::int64_t kWidest = 16;  // elements of a vector; rows end with what the last ones read in vain
  std::int64_t results, rows, phase, row;
  std::int64_t columns_between, phases_between;  // from a tap to the next one
};
/// What the copied rows of a block need, in elements.
template <class T> std::int64_t depthwise_room(const DepthwisePlane<T>& p) {
  const DepthwiseBlock block(p);
  return block.rows * block.row;
}

}  // namespace fermata
