// The comparison of numerics_test.cpp, apart from it because it is what a run over all numbers takes: it is optimized,
// which tests are not otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fermata::testing {

struct UlpErrors {
  double worst = 0;               // in units of the last place of the exact result
  std::size_t worst_at = 0;       // the first position of it
  std::size_t different = kNone;  // the first position whose results have other bits, unless both are NaN
  static constexpr std::size_t kNone = ~std::size_t{0};
};

/// |got - exact| in units of the last place of `exact`, where infinity is the number after the largest one, and 1e30
/// where one is NaN; and whether `other` is the same as `got`. All of one size.
UlpErrors ulp_errors(std::span<const float> got, std::span<const float> other, std::span<const double> exact);

/// Fills the list with the numbers of the bit patterns `first`, `first + stride` and so on, or with those below `end`.
/// Gives the pattern that is next.
std::uint64_t fill_with_patterns(std::vector<float>& numbers, std::uint64_t first, std::uint64_t stride,
                                 std::uint64_t end);

}  // namespace fermata::testing
