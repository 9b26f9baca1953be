// Ways in which a tensor can lie in memory, for tests whose results must not depend on that.
#pragma once

#include <fermata/fermata.h>
#include <fermata/pooling.h>

#include <numeric>
#include <vector>

namespace fermata::testing {

/// A layout of tensors of any shape and dtype.
struct Layout {
  const char* name;
  /// A view that is laid out so, of the shape and dtype of x. Its elements are those of x, unless several share memory.
  Tensor (*of)(const Tensor& x);
  bool shares = false;
};

/// Windows that overlap: every axis steps by one or two elements along the memory of the others.
inline Tensor overlapping(const Tensor& x, bool turned) {
  if (x.rank() == 0 || x.element_count() == 0) return x;
  const auto apart = [](unsigned axis) { return std::int64_t{1} + axis % 2; };
  std::int64_t length = x.size(0);
  for (unsigned axis = 1; axis < x.rank(); ++axis) length += apart(axis) * (x.size(axis) - 1);
  const Tensor at = remainder(arange(length), x.element_count());
  Tensor windows = take(reshape(copy(x), -1), at, 0).sync();
  std::vector<std::int64_t> order{0};
  for (unsigned axis = turned ? 1 : x.rank() - 1; axis > 0 && axis < x.rank(); axis += turned ? 1 : -1u) {
    windows = unfold(windows, 0, x.size(axis), 1, apart(axis));
    order.push_back(axis);
  }
  std::vector<std::int64_t> sources(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    sources[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return permute(windows, sources);
}

inline constexpr Layout kLayouts[] = {
    {"axes reversed",
     [](const Tensor& x) {
       std::vector<std::int64_t> order(x.rank());
       std::iota(order.rbegin(), order.rend(), 0);
       return permute(copy(permute(x, order)).sync(), order);
     }},
    {"negative strides", [](const Tensor& x) { return flip(copy(flip(x)).sync()); }},
    {"gaps",
     [](const Tensor& x) {
       if (x.rank() == 0) return select(stack({x, x}).sync(), 0, 1);
       return select(stack({zeros_like(x), x}, -1).sync(), -1, 1);
     }},
    {"an offset",
     [](const Tensor& x) {
       return select(stack({zeros_like(x), x}).sync(), 0, 1);
     }},
    {"overlapping windows", [](const Tensor& x) { return overlapping(x, false); }, true},
    {"overlapping windows, axes turned", [](const Tensor& x) { return overlapping(x, true); }, true},
    {"the first axis stretched",
     [](const Tensor& x) { return x.rank() == 0 ? x : broadcast_to(copy(slice(x, 0, 0, 1)).sync(), x.shape()); }, true},
    {"the last axis stretched",
     [](const Tensor& x) { return x.rank() == 0 ? x : broadcast_to(copy(slice(x, -1, 0, 1)).sync(), x.shape()); },
     true},
    {"reversed windows", [](const Tensor& x) { return flip(overlapping(x, true)); }, true},
};

}  // namespace fermata::testing
