// Scans of dense lines in vectors: the innermost loops, compiled once per instruction set (scan_loops_*.cpp).
#pragma once

#include <cstdint>
#include <type_traits>

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

/// Which of them there are. Sums and products of integers are computed as unsigned ones, whose bits are those of signed
/// ones; unsigned ones are rarely compared.
template <class T> inline constexpr bool kSumsByLine = std::is_unsigned_v<T>;
template <class T> inline constexpr bool kSumsBySides = std::is_floating_point_v<T>;
template <class T> inline constexpr bool kComparesByLine = !std::is_unsigned_v<T>;
inline constexpr int kMostScanSides = 16;

/// A base for each dtype: sums of integers have 64 bits.
struct ScanLoopTable : ScanLoops<std::uint64_t>,
                       ScanLoops<std::int32_t>,
                       ScanLoops<std::int64_t>,
                       ScanLoops<float>,
                       ScanLoops<double> {};
template <class T> inline constexpr bool kHasScanLoops = std::is_base_of_v<ScanLoops<T>, ScanLoopTable>;
extern const ScanLoopTable kScanLoopsBaseline;
#if defined(__x86_64__)
extern const ScanLoopTable kScanLoopsAvx2;
extern const ScanLoopTable kScanLoopsAvx512;
#endif

}  // namespace fermata
