// See shape.h.
#include "ir/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fermata {

std::optional<std::int64_t> checked_element_count(std::span<const std::int64_t> sizes) {
  // Zero sizes are left out of the product: [0, 2^62, 4] has no elements, but its strides would overflow.
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : sizes) {
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  }
  return empty ? 0 : product;
}

std::int64_t element_count(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

int last_unit_axis(std::span<const std::int64_t> strides) {
  for (std::size_t axis = strides.size(); axis-- > 0;)
    if (strides[axis] == 1) return static_cast<int>(axis);
  return -1;
}

Shape dense_strides(std::span<const std::int64_t> sizes) {
  Shape strides(sizes);
  std::int64_t step = 1;
  for (unsigned i = strides.rank(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

bool is_dense(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= sizes[i];
  }
  return true;
}

std::optional<Shape> broadcast_shapes(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Shape result(a);
  const std::size_t prepended = a.size() - b.size();
  for (std::size_t i = 0; i < b.size(); ++i) {
    std::int64_t& size = result[prepended + i];
    if (size == 1)
      size = b[i];
    else if (b[i] != 1 && b[i] != size)
      return std::nullopt;
  }
  return result;
}

std::uint16_t stretched_axes(std::span<const std::int64_t> operand, std::span<const std::int64_t> result) {
  unsigned mask = 0;
  const std::size_t prepended = result.size() - operand.size();
  for (std::size_t i = 0; i < result.size(); ++i)
    if (i < prepended || (operand[i - prepended] == 1 && result[i] != 1)) mask |= 1u << i;
  return static_cast<std::uint16_t>(mask);
}

std::optional<Shape> reshape_strides(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                                     std::span<const std::int64_t> new_sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return dense_strides(new_sizes);
  // Axes of size 1 say nothing about the layout; of the others, a group of old axes with as many elements as a group of
  // new ones must be regular inside itself.
  Shape old_sizes, old_strides;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    old_sizes.push_back(sizes[i]);
    old_strides.push_back(strides[i]);
  }
  Shape result(new_sizes);
  std::size_t old_end = old_sizes.rank(), new_end = new_sizes.size();
  while (old_end > 0) {
    if (new_end == 0) return std::nullopt;
    std::size_t old_begin = old_end - 1, new_begin = new_end - 1;
    std::int64_t old_count = old_sizes[old_begin], new_count = new_sizes[new_begin];
    while (old_count != new_count) {
      std::size_t& begin = old_count < new_count ? old_begin : new_begin;
      if (begin == 0) return std::nullopt;  // not as many elements
      --begin;
      if (&begin == &old_begin)
        old_count *= old_sizes[begin];
      else
        new_count *= new_sizes[begin];
    }
    for (std::size_t i = old_begin; i + 1 < old_end; ++i)
      if (old_strides[i] != old_sizes[i + 1] * old_strides[i + 1]) return std::nullopt;
    std::int64_t step = old_strides[old_end - 1];
    for (std::size_t i = new_end; i-- > new_begin;) {
      result[i] = step;
      step *= new_sizes[i];
    }
    old_end = old_begin, new_end = new_begin;
  }
  if (std::any_of(new_sizes.begin(), new_sizes.begin() + static_cast<std::ptrdiff_t>(new_end),
                  [](std::int64_t size) { return size != 1; }))
    return std::nullopt;
  for (std::size_t i = new_end; i-- > 0;) result[i] = i + 1 < new_sizes.size() ? result[i + 1] * new_sizes[i + 1] : 1;
  return result;
}

std::string to_string(std::span<const std::int64_t> sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }
std::string to_string(DType dtype, std::span<const std::int64_t> sizes) {
  return std::string(name(dtype)) + to_string(sizes);
}

}  // namespace fermata
