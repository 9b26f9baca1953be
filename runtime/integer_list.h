// Lists of integers as arguments: sizes of a shape, axes, positions; and the omitted bound of a slice.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "ir/shape.h"

namespace fermata {

/// An omitted bound of a slice: the end of the axis in the direction of the step.
inline constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();

/// No axes at all; an empty list means all of them. sum(x, no_axes) is x.
struct NoAxes {};
inline constexpr NoAxes no_axes{};

/// The argument type for sizes or axes: {2, 3}, one integer, a Shape, a vector. It refers to the caller's list and
/// lives for one call. Unlike a Shape it can have any length, so that a list that is too long is an error instead of
/// being truncated.
class IntegerList {
 public:
  IntegerList() = default;
  IntegerList(std::initializer_list<std::int64_t> list) : IntegerList(std::span(std::data(list), list.size())) {}
  IntegerList(std::span<const std::int64_t> list) : list_(list) {}
  IntegerList(NoAxes) : names_none_(true) {}
  IntegerList(const Shape& list) : list_(list.data(), list.size()) {}
  IntegerList(const std::vector<std::int64_t>& list) : list_(list) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) IntegerList(T only) : only_(static_cast<std::int64_t>(only)), list_(&only_, 1) {}
  IntegerList(const IntegerList&) = delete;
  IntegerList& operator=(const IntegerList&) = delete;

  operator std::span<const std::int64_t>() const { return list_; }
  bool empty() const { return list_.empty(); }
  /// Whether it is no_axes. The meaning of another empty list depends on the call.
  bool names_none() const { return names_none_; }
  std::size_t size() const { return list_.size(); }
  const std::int64_t* begin() const { return list_.data(); }
  const std::int64_t* end() const { return list_.data() + list_.size(); }
  std::int64_t operator[](std::size_t i) const { return list_[i]; }

 private:
  bool names_none_ = false;
  std::int64_t only_ = 0;
  std::span<const std::int64_t> list_;
};

}  // namespace fermata
