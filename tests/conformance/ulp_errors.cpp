// See ulp_errors.h.
#include "tests/conformance/ulp_errors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace fermata::testing {
namespace {

double between(double x, double low, double high) {
  const double raised = x < low ? low : x;
  return raised > high ? high : raised;
}

/// Without branches and integers of 64 bits, so that the compiler makes vectors of it.
double error_of(float got, double exact) {
  constexpr double kAfterLargest = 0x1p128, kOneIsNan = 1e30;
  constexpr std::uint64_t kExponent = std::uint64_t{2047} << 52;
  const double value = between(exact, -kAfterLargest, kAfterLargest);
  const double distance = std::fabs(between(static_cast<double>(got), -kAfterLargest, kAfterLargest) - value);
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & kExponent);
  const double error = distance / between(power, 0x1p-126, 0x1p127) * 0x1p23;
  const bool is_nan = got != got, should_be_nan = exact != exact;
  return is_nan != should_be_nan ? kOneIsNan : is_nan ? 0 : error;
}

bool differ(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) != std::bit_cast<std::uint32_t>(b) && !(a != a && b != b);
}

}  // namespace

UlpErrors ulp_errors(std::span<const float> got, std::span<const float> other, std::span<const double> exact) {
  UlpErrors found;
  constexpr std::size_t kBlock = 256;
  for (std::size_t begin = 0; begin < got.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, got.size());
    double worst = 0;
    std::uint32_t differing = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double error = error_of(got[i], exact[i]);
      worst = error > worst ? error : worst;
      differing |= differ(got[i], other[i]) ? 1u : 0u;
    }
    if (worst > found.worst) {
      found.worst = worst, found.worst_at = begin;
      while (error_of(got[found.worst_at], exact[found.worst_at]) != worst) ++found.worst_at;
    }
    if (differing != 0 && found.different == UlpErrors::kNone) {
      found.different = begin;
      while (!differ(got[found.different], other[found.different])) ++found.different;
    }
  }
  return found;
}

std::uint64_t fill_with_patterns(std::vector<float>& numbers, std::uint64_t first, std::uint64_t stride,
                                 std::uint64_t end) {
  const std::uint64_t left = (end - first + stride - 1) / stride;
  if (left < numbers.size()) numbers.resize(left);
  for (float& number : numbers) {
    number = std::bit_cast<float>(static_cast<std::uint32_t>(first));
    first += stride;
  }
  return first;
}

}  // namespace fermata::testing
