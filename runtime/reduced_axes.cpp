// See reduced_axes.h.
#include "runtime/reduced_axes.h"

#include <array>
#include <cstdlib>
#include <utility>

#include "ir/shape.h"

namespace fermata {

void order_reduced_axes(std::span<std::int64_t> sizes, std::uint64_t reduced, std::span<std::int64_t> strides) {
  const std::size_t rank = sizes.size();
  std::array<std::size_t, kMaxRank> axes{}, order{};
  std::size_t count = 0;
  for (std::size_t axis = 0; axis < rank; ++axis)
    if ((reduced >> axis & 1) != 0 && sizes[axis] != 1) axes[count++] = axis;
  order = axes;
  const auto distance = [&](std::size_t axis) {
    std::uint64_t sum = 0;
    for (std::size_t first = 0; first < strides.size(); first += rank)
      sum += static_cast<std::uint64_t>(std::abs(strides[first + axis]));
    return sum;
  };
  for (std::size_t i = 1; i < count; ++i)
    for (std::size_t j = i; j > 0 && distance(order[j - 1]) < distance(order[j]); --j)
      std::swap(order[j - 1], order[j]);
  if (order == axes) return;
  // Code may take elements along the last axis for neighbors, in this direction.
  const std::size_t last = axes[count - 1];
  for (std::size_t first = 0; first < strides.size(); first += rank) {
    if (strides[first + last] == 1 && strides[first + order[count - 1]] != 1) return;
    for (std::size_t i = 1; i < count; ++i) {
      const std::int64_t outer = std::abs(strides[first + order[i - 1]]), inner = std::abs(strides[first + order[i]]);
      if (outer < inner || (outer == 0) != (inner == 0)) return;
    }
  }
  const auto exchange = [&](std::span<std::int64_t> of_axes) {
    std::array<std::int64_t, kMaxRank> moved{};
    for (std::size_t i = 0; i < count; ++i) moved[i] = of_axes[order[i]];
    for (std::size_t i = 0; i < count; ++i) of_axes[axes[i]] = moved[i];
  };
  exchange(sizes);
  for (std::size_t first = 0; first < strides.size(); first += rank) exchange(strides.subspan(first, rank));
}

}  // namespace fermata
