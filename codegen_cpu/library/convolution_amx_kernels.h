// What convolutions by AMX tiles are made of, in a file of their own that is compiled for it
// (convolution_amx_kernels.cpp).
//
// Windows are not written down. Each number of an image becomes three bf16, of which it is the sum; planes of 16 pairs
// of channels lie behind each other with their padding, so that the 16 columns of a tile are 16 places that follow each
// other, from the place of a tap on, and are loaded from there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// Channels of a tile, in pairs (c, c + 16); filters and places that are multiplied together.
inline constexpr std::int64_t kAmxChannels = 32, kAmxFilters = 32, kAmxPlaces = 32;

/// Up to 32 channels of an image to be split, rows of adjacent elements.
struct AmxSplitting {
  const float* from;
  std::int64_t channel_stride, row_stride;  // in elements
  std::int64_t channels, rows, columns;
  std::uint32_t* to;                       // where the first element of the first plane goes; lanes of two bf16
  std::int64_t to_row, to_plane, to_part;  // in lanes
};

/// 32 filters to be split, or fewer, into a panel of the left side (matmul_amx_kernels.h): for every tap all channels.
struct AmxFilters {
  const float* from;
  std::int64_t filter_stride, channel_stride;  // in elements; taps lie next to each other
  std::int64_t filters, channels, taps;
  bool reversed;  // the last tap first
  std::byte* panel;
};

/// Sums over some steps: 32 filters times 32 places.
struct AmxWindows {
  const std::byte* weights;          // a panel of the left side, as in matmul_amx_kernels.h
  const std::byte* planes;           // at the first place
  const std::int64_t* step_offsets;  // of each step's 32 channels and tap, in bytes
  std::int64_t steps, plane_bytes, part_bytes;
  float* sums;  // 32 to a row, 64-byte aligned
};

struct AmxConvolutionKernels {
  /// Give the bits of the largest magnitude.
  std::uint32_t (*split)(const AmxSplitting&);
  std::uint32_t (*pack)(const AmxFilters&);
  void (*multiply)(const AmxWindows&);
};
#if defined(__x86_64__)
extern const AmxConvolutionKernels kAmxConvolutionKernels;
#endif

}  // namespace fermata
