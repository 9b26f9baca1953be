// The arguments of a slice along several axes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fermata/views.h"
#include "frontend/engine/alias.h"
#include "frontend/ops/op_rules.h"
#include "ir/op_fields.h"
#include "ir/ops/views.h"

namespace fermata {

/// Bounds of a slice as Python clamps them: `start` and how many elements.
struct SliceRange {
  std::int64_t start, count;
};
inline SliceRange slice_range(std::int64_t size, std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step == 0) return {0, 0};  // an error of the op
  const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto clamp = [&](std::int64_t bound) { return std::clamp(bound < 0 ? bound + size : bound, lowest, highest); };
  const std::int64_t first = start != kNone ? clamp(start) : step > 0 ? 0 : size - 1;
  const std::int64_t last = stop != kNone ? clamp(stop) : step > 0 ? highest : lowest;
  const std::int64_t distance = step > 0 ? last - first : first - last;
  if (distance <= 0) return {std::min(std::max(first, std::int64_t{0}), size), 0};
  // -step does not overflow where it matters: a step of the lowest integer takes one element.
  const std::int64_t stride = step == INT64_MIN ? INT64_MAX : step > 0 ? step : -step;
  return {first, (distance - 1) / stride + 1};
}

/// A slice along some axes: start and step for each, and the sizes that are left.
struct SliceArguments {
  explicit SliceArguments(const Shape& shape) : counts(shape) {
    for (unsigned i = 0; i < shape.rank(); ++i) starts.push_back(0), steps.push_back(1);
  }
  void set(unsigned axis, std::int64_t start, std::int64_t count, std::int64_t step) {
    starts[axis] = count == 0 ? 0 : start, steps[axis] = step, counts[axis] = count;
  }
  void set(unsigned axis, SliceRange range, std::int64_t step) { set(axis, range.start, range.count, step); }
  Tensor apply(const Tensor& x, Location where) const {
    const ops::Slice slice{.start = {starts}, .step = {steps}, .counts = {counts}};
    return make_view(Op::slice, x, encode(slice), counts, where);
  }

  Shape counts, starts, steps;
};

}  // namespace fermata
