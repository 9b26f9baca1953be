// Images at places: what the kernel of grid_sample hands to its loops, which are compiled once per instruction set.
#pragma once

#include <cstdint>

#include "ir/shape.h"

namespace fermata {

/// Places of one image, all dense: x [channels, ..sizes], grid [places, axes], out [channels, places].
struct SampledImage {
  const void* x;
  const void* grid;
  void* out;
  std::int64_t channels, places;
  unsigned axes;
  std::int64_t sizes[kMaxRank];
  int mode, padding;  // as those of ops::GridSample
  bool align_corners;
};

struct GridSampleKernels {
  /// Places [begin, end).
  void (*f32)(const SampledImage& image, std::int64_t begin, std::int64_t end);
  void (*f64)(const SampledImage& image, std::int64_t begin, std::int64_t end);
};
extern const GridSampleKernels kGridSampleBaseline;
#if defined(__x86_64__)
extern const GridSampleKernels kGridSampleAvx2;
extern const GridSampleKernels kGridSampleAvx512;
#endif

}  // namespace fermata
