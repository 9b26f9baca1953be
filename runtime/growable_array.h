// An array that grows by several elements at once, which are then written in place: one capacity check per group, where
// push_back of a vector makes one, and often a call, per element.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace fermata {

template <class T>
requires std::is_trivially_copyable_v<T>
class GrowableArray {
 public:
  /// Appends `n` uninitialized elements and returns a pointer to the first.
  T* extend(std::size_t n) {
    if (capacity_ - size_ < n) [[unlikely]]
      grow(n);
    size_ += n;
    return data_.get() + size_ - n;
  }
  void push_back(const T& value) { *extend(1) = value; }
  void clear() { size_ = 0; }
  void shrink(std::size_t size) { size_ = size; }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  void pop_back() { --size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  [[gnu::noinline]] void grow(std::size_t n) {
    capacity_ = std::max(2 * capacity_, size_ + n + 64);
    std::unique_ptr<T[]> more(new T[capacity_]);
    std::copy_n(data_.get(), size_, more.get());
    data_ = std::move(more);
  }
  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace fermata
