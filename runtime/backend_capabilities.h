// The capabilities of a backend that passes and plans depend on. The defaults describe a device: it spreads a launch
// over its own processors, and the launch may continue after the call that started it returned.
#pragma once

#include <cstdint>

namespace fermata {

/// Rows of so few elements leave lanes of vectors empty: kernels may process vectors of rows instead.
inline constexpr std::int64_t kLongestShortRow = 24;

struct BackendCapabilities {
  /// A launch runs on the calling thread, in host memory, and has finished when it returns. The runtime splits launches
  /// into ranges for its threads, and runs dependent steps part by part, in memory of the thread.
  bool launches_on_caller = false;
  /// Kernels process rows in vectors, and lanes beyond the end of a row are wasted.
  bool rows_in_vectors = false;
  /// Hot kernels process vectors of rows if rows have at most `turned_rows` elements and one axis has at least
  /// `fewest_turned_rows` rows; 0: never.
  std::int64_t turned_rows = 0, fewest_turned_rows = 0;
  /// Results may be written over operands (docs/adr/016).
  bool overwrites_operands = false;
  /// Kernels are compiled on the calling thread, so several may be compiled in parallel.
  bool compiles_on_caller = false;
  /// Kernels of convolutions read and write images whose channels lie innermost, and do so best.
  bool channels_last = false;
  /// Kernels store results in parts of larger buffers as fast as in buffers of their own.
  bool stores_parts = false;
};

}  // namespace fermata
