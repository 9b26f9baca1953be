// Arrays of a length that is known when a call is made, and nearly always small.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace fermata {

/// `count` default elements, in place if there are at most kFew: what calls have for each operand needs no allocation.
template <class T, std::size_t kFew = 3> class Few {
 public:
  explicit Few(std::size_t count) : count_(count) {
    if (count > kFew) [[unlikely]]
      many_.resize(count);
  }
  T& operator[](std::size_t i) { return data()[i]; }
  T* data() { return count_ > kFew ? many_.data() : few_.data(); }
  std::size_t size() const { return count_; }
  operator std::span<T>() { return {data(), count_}; }
  operator std::span<const T>() { return {data(), count_}; }

 private:
  std::size_t count_;
  std::array<T, kFew> few_;
  std::vector<T> many_;
};

}  // namespace fermata
