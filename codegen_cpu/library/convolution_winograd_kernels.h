// Winograd's transforms for filters of 3x3 and tiles of 2x2 results, compiled once per instruction set
// (convolution_winograd_*.cpp). Source: Lavin and Gray, arXiv:1509.09308.
//
// A tile of 4x4 places of the image becomes 16 numbers for each channel, and so does a filter. Their products, added up
// over channels by 16 matrix products, become the 2x2 results. Channels and filters are innermost everywhere.
#pragma once

#include <cstdint>

namespace fermata {

/// Places of a tile, and numbers that each channel of it becomes.
inline constexpr std::int64_t kWinogradTile = 4, kWinogradPositions = kWinogradTile * kWinogradTile;
/// Results of a tile along an axis.
inline constexpr std::int64_t kWinogradResults = 2;

/// Tiles side by side in an image.
struct WinogradTiles {
  const float* rows[kWinogradTile];  // place 0 of each row; null where a row lies outside of the image
  std::int64_t place, width;         // elements from a place to the next; places of a row
  std::int64_t column;               // of the first tile: the place where it begins, which may be negative
  std::int64_t tiles, channels;
  float* to;                          // [positions, tiles, channels]
  std::int64_t to_tile, to_position;  // in elements
  float* room;                        // a tile: kWinogradPositions * channels
};

/// What products gave for such tiles, on its way to the results.
struct WinogradSums {
  const float* sums;  // [positions, tiles, filters]
  std::int64_t sums_tile, sums_position;
  std::int64_t tiles, filters;
  float* to;                   // the first result
  std::int64_t row, place;     // elements from a row of results to the next, and from a place
  std::int64_t rows, columns;  // results that there are from there on
  unsigned char* is_finite;    // for each tile, whether all of its results are
};

/// Filters of a panel of the right side of the 16 products: [channels, 9, width] becomes [positions, channels, width].
struct WinogradFilters {
  const float* from;
  std::int64_t channels;
  float* to;
  std::int64_t to_position;
};

struct WinogradKernels {
  void (*transform)(const WinogradTiles& tiles);
  void (*finish)(const WinogradSums& sums);
  void (*transform_filters)(const WinogradFilters& filters);
  std::int64_t width;  // of a panel, as matmul_portable has it
};
extern const WinogradKernels kWinogradBaseline;
#if defined(__x86_64__)
extern const WinogradKernels kWinogradAvx2;
extern const WinogradKernels kWinogradAvx512;
#endif

}  // namespace fermata
