// Scans of dense lines in vectors: the innermost loops, compiled once per instruction set (scan_loops_*.cpp).
#pragma once

#include <cstdint>

namespace fermata {

template <class T> struct ScanLoops {
  /// A line of `count` elements, each combined with all before it and, unless it is null, with `before`; gives the last
  /// one. There are none where another grouping of the elements gives other bits: for sums and products of floats.
  using Line = T (*)(const T* x, T* out, std::int64_t count, const T* before);
  /// `sides` lines of as many elements each, every one from its first element to its last.
  using Sides = void (*)(const T* const* x, T* const* out, std::int64_t count);

  Line sum_line, prod_line, max_line, min_line;
  Sides sum_sides, prod_sides;
  std::int64_t sides;
};

/// Sums and products of integers are computed in 64 bits, and of unsigned ones, whose bits are those of signed ones.
/// Unsigned ones are rarely compared.
struct ScanLoopTable {
  ScanLoops<std::uint64_t> u64;
  ScanLoops<std::int32_t> i32;
  ScanLoops<std::int64_t> i64;
  ScanLoops<float> f32;
  ScanLoops<double> f64;
};
extern const ScanLoopTable kScanLoopsBaseline;
#if defined(__x86_64__)
extern const ScanLoopTable kScanLoopsAvx2;
extern const ScanLoopTable kScanLoopsAvx512;
#endif

}  // namespace fermata
