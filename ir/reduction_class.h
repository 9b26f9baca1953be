// Sizes that decide whether a reduction of stored elements is a call or part of a kernel (passes/select.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace fermata {

/// The longest rows of which calls take less than kernels, by what is reduced, where there are many of them.
struct CalledRows {
  static constexpr std::int64_t kLongest = 24, kInVectors = 64, kOfExtremes = 128, kOfSums = 512, kOfBytes = 4096;
  static constexpr std::int64_t kMany = 1024;
  static constexpr std::int64_t kManyOfAnAxis = 32;  // that is kept, for rows of several axes
};
/// Elements, and neighbors along an axis, from which reductions across memory are calls.
struct CalledAcross {
  static constexpr std::int64_t kLarge = std::int64_t{1} << 14, kFewest = 32;
};

/// A number that sizes share if such choices are the same for them. Plans are kept by it.
inline std::uint32_t reduction_class(std::span<const std::int64_t> sizes, std::uint64_t reduced) {
  std::int64_t whole = 1, row = 1, longest_kept = 0;
  bool is_row = true;  // up to the innermost axis that is kept
  for (std::size_t axis = sizes.size(); axis-- > 0; whole *= sizes[axis]) {
    if ((reduced >> axis & 1) == 0)
      longest_kept = std::max(longest_kept, sizes[axis]), is_row = false;
    else if (is_row)
      row *= sizes[axis];
  }
  std::uint32_t number = whole >= CalledAcross::kLarge ? 1 : 0;
  number = 2 * number + (longest_kept >= CalledRows::kManyOfAnAxis ? 1 : 0);
  if (row == 0 || whole / row < CalledRows::kMany) return number;
  std::uint32_t length = 1;
  for (const std::int64_t longest : {CalledRows::kLongest, CalledRows::kInVectors, CalledRows::kOfExtremes,
                                     CalledRows::kOfSums, CalledRows::kOfBytes})
    length += row > longest ? 1 : 0;
  return 8 * number + length;
}

}  // namespace fermata
