// See bounds_check.h.
#include "runtime/bounds_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "runtime/environment.h"

namespace fermata {
namespace {

struct Axis {
  std::int64_t size, stride;
};
struct Offsets {
  std::int64_t least = 0, most = 0;
  void add(std::int64_t first, std::int64_t last, std::int64_t stride) {
    least += std::min(first * stride, last * stride), most += std::max(first * stride, last * stride);
  }
};
Offsets either(const Offsets& a, const Offsets& b) { return {std::min(a.least, b.least), std::max(a.most, b.most)}; }

/// Over rows [begin, end), of which there are some, in the row-major order of the axes.
Offsets over_rows(std::span<const Axis> axes, std::int64_t begin, std::int64_t end) {
  Offsets all;
  if (axes.empty()) return all;
  std::int64_t inner = 1;
  for (const Axis& axis : axes.subspan(1)) inner *= axis.size;
  if (begin == 0 && end == inner * axes[0].size) {
    for (const Axis& axis : axes) all.add(0, axis.size - 1, axis.stride);
    return all;
  }
  const auto at = [&](std::int64_t digit, std::int64_t from, std::int64_t to) {
    Offsets rest = over_rows(axes.subspan(1), from, to);
    rest.add(digit, digit, axes[0].stride);
    return rest;
  };
  const std::int64_t first = begin / inner, last = (end - 1) / inner;
  if (first == last) return at(first, begin - first * inner, end - first * inner);
  all = either(at(first, begin - first * inner, inner), at(last, 0, end - last * inner));
  if (last - first > 1) all = either(all, either(at(first + 1, 0, inner), at(last - 1, 0, inner)));
  return all;
}

}  // namespace

constinit std::atomic<signed char> detail::bounds_checks = 0;

bool detail::read_bounds_checks() {
  const char* const value = environment_variable("FERMATA_CHECK_BOUNDS");
  signed char unread = 0;
  bounds_checks.compare_exchange_strong(unread, value != nullptr && std::string_view(value) == "1" ? 2 : 1);
  return bounds_checks == 2;
}

bool set_bounds_checks(bool on) {
  const bool before = checks_bounds();
  detail::bounds_checks = on ? 2 : 1;
  return before;
}

Reach reach_of(const LaunchPoints& points, std::span<const std::int64_t> strides, std::size_t element_bytes) {
  const std::size_t vector_axis = points.sizes.size() - 1;
  Offsets offsets;
  std::vector<Axis> rows;
  std::int64_t row_count = 1;
  for (std::size_t axis = 0; axis <= vector_axis; ++axis) {
    const std::int64_t size = points.sizes[axis];
    if (size == 0 && strides[axis] != 0) return {};
    if ((points.reduced >> axis & 1) != 0) {
      if (size != 0) offsets.add(0, size - 1, strides[axis]);
    } else if (axis == vector_axis) {
      const std::int64_t end = std::min(points.column_end, size);
      if (strides[axis] == 0) continue;
      if (points.column_begin >= end) return {};
      offsets.add(points.column_begin, end - 1, strides[axis]);
    } else {
      rows.push_back({size, strides[axis]}), row_count *= size;
    }
  }
  const std::int64_t row_end = std::min(points.row_end, row_count);
  if (points.row_begin < row_end) {
    const Offsets of_rows = over_rows(rows, points.row_begin, row_end);
    offsets.least += of_rows.least, offsets.most += of_rows.most;
  } else if (std::ranges::any_of(rows, [](const Axis& axis) { return axis.stride != 0; })) {
    return {};
  }
  const auto bytes = static_cast<std::int64_t>(element_bytes);
  return {offsets.least * bytes, (offsets.most + 1) * bytes};
}

void check_in_buffer(std::string_view step, std::size_t operand, const void* origin, const Reach& reach,
                     const void* buffer, std::size_t buffer_bytes) {
  const std::int64_t at = static_cast<const std::byte*>(origin) - static_cast<const std::byte*>(buffer);
  if (reach.begin == reach.end || (at + reach.begin >= 0 && at + reach.end <= static_cast<std::int64_t>(buffer_bytes)))
    return;
  fmt::print(stderr, "fermata: {} is out of bounds: access {} reaches bytes [{}, {}) of {}\n", step, operand,
             at + reach.begin, at + reach.end, buffer_bytes);
  std::abort();
}

}  // namespace fermata
