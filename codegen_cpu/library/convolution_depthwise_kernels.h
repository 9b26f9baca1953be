// Convolutions of one plane with one filter, or of an image whose channels lie innermost: the loops, compiled once per
// instruction set (convolution_depthwise_*.cpp).
//
// Of a plane rows are copied with their padding, each place of a step apart, so that every tap reads whole vectors.
// Products are added up tap by tap, those of the padding, too. Of f32 nothing is contracted, so bits are the same on
// every processor and for either order; of bf16, whose images have their channels innermost, processors with FMA round
// a product and its sum once.
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

/// Vectors of the result whose sums are made together: of at most as many rows.
inline constexpr std::int64_t kDepthwiseSums = 8;
/// What `results` rows of the result need is copied: `rows` rows, `row` elements apart, in which the elements that a
/// tap reads lie side by side, `phase` elements for each place within a step. `results` rows stay in the L1 cache.
struct DepthwiseBlock {
  template <class T> explicit DepthwiseBlock(const DepthwisePlane<T>& p)
      : phase(p.columns + (p.window[1] - 1) * p.dilation[1] / p.step[1] + kWidest),
        row(phase * p.step[1]),
        results(1),
        rows((p.window[0] - 1) * p.dilation[0] + 1) {
    if (p.rows == 1) return;
    const std::int64_t fit = kBytes / static_cast<std::int64_t>(sizeof(T)) / (row * p.step[0]);
    const auto groups = [](std::int64_t n) { return (n + kDepthwiseSums - 1) / kDepthwiseSums; };
    results = kDepthwiseSums * (fit < p.rows ? fit < kDepthwiseSums ? 1 : fit / kDepthwiseSums : groups(p.rows));
    rows += (results - 1) * p.step[0];
  }
  static constexpr std::int64_t kBytes = 20 << 10;
  static constexpr std::int64_t kWidest = 16;  // elements of a vector; rows are padded for the last loads
  std::int64_t phase, row, results, rows;
  /// What the copied rows need, in elements.
  std::int64_t room() const { return rows * row + kWidest; }
  /// From a result's place in what is copied to what tap j of row i of the filter reads.
  template <class T> std::int64_t offset(const DepthwisePlane<T>& p, std::int64_t i, std::int64_t j) const {
    const std::int64_t place = j * p.dilation[1];
    return i * p.dilation[0] * row + place % p.step[1] * phase + place / p.step[1];
  }
};

/// `offsets` has that of every tap.
template <class T> using DepthwiseKernel = void (*)(const DepthwisePlane<T>& plane, const DepthwiseBlock& block,
                                                    const std::int64_t* offsets, T* room);

/// One image of f32, or bf16 as its bits, and a filter for each of its channels.
template <class E> struct DepthwiseImage {
  const E* from;  // rows and columns of adjacent channels, dense
  std::int64_t height, width, channels;
  E* to;  // the same
  std::int64_t columns;
  const float* taps;                                         // for every tap the channels
  const E* zeros;                                            // as many as channels
  std::int64_t window[2], step[2], dilation[2], padding[2];  // padding may be negative
};
/// Places whose sums are made together.
inline constexpr std::int64_t kDepthwisePlaces = 4;
/// One row of the result. `room` is for kDepthwisePlaces pointers for every tap.
template <class E> using DepthwiseRow = void (*)(const DepthwiseImage<E>& image, std::int64_t row, const E** room);

struct DepthwiseKernels {
  DepthwiseKernel<float> f32;
  DepthwiseKernel<double> f64;
  DepthwiseRow<float> row_f32;
  DepthwiseRow<std::uint16_t> row_bf16;
};
extern const DepthwiseKernels kDepthwiseBaseline;
#if defined(__x86_64__)
extern const DepthwiseKernels kDepthwiseAvx2;
extern const DepthwiseKernels kDepthwiseAvx512;
#endif

}  // namespace fermata
