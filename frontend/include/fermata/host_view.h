// Zero-copy access to a tensor's elements from C++, and tensors over memory of the caller.
//
//   fm::HostView<const float> v(x);   // v(i, j), v.span(), Eigen::Map<..>(v.data(), v.size(0), v.size(1))
//   fm::Tensor y = fm::adopt(std::move(numbers), {2, 3});
//
// A view keeps its memory alive, independently of the tensor. A view of const elements is a snapshot: it does not show
// later writes to the tensor. A view of mutable elements aliases the tensor, with the rules of Tensor::data(). Spans,
// pointers and iterators are valid for the lifetime of the view. CPU only.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

namespace detail {
/// Returns the elements in row-major order without gaps; `keep` is set to a tensor that owns them.
const void* read_only_elements(const Tensor& x, DType dtype, Tensor& keep, Location where);
Tensor tensor_over_memory(const void* elements, std::size_t count, DType dtype, const IntegerList& sizes,
                          std::shared_ptr<const void> owner, Location where);
}  // namespace detail

/// A view of a tensor's elements in row-major order. T is the element type, const or not.
template <class T> class HostView {
 public:
  /// Errors   DTypeError FM1106 unless T is the element type; DeviceError FM1402 off the CPU; for a T that is not const
  ///          ValueError FM1309 for a view with gaps.
  explicit HostView(const Tensor& x, Location where = Location::current()) : shape_(x.shape(where)) {
    if constexpr (std::is_const_v<T>) {
      data_ = static_cast<T*>(detail::read_only_elements(x, dtype_of<std::remove_const_t<T>>, keep_, where));
    } else {
      keep_ = x;
      data_ = x.template data<T>(where);
    }
    std::int64_t stride = 1;
    strides_ = shape_;
    for (unsigned i = shape_.rank(); i-- > 0;) strides_[i] = stride, stride *= shape_[i];
    count_ = static_cast<std::size_t>(stride);
  }

  T* data() const { return data_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size(unsigned axis) const { return shape_[axis]; }
  /// Strides in elements.
  const Shape& strides() const { return strides_; }
  unsigned rank() const { return shape_.rank(); }
  std::size_t size() const { return count_; }
  std::span<T> span() const { return {data_, count_}; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  /// Takes one position per axis; not checked.
  template <std::integral... I> T& operator()(I... position) const {
    std::int64_t offset = 0;
    unsigned axis = 0;
    ((offset += static_cast<std::int64_t>(position) * strides_[axis++]), ...);
    return data_[offset];
  }

 private:
  Tensor keep_;
  Shape shape_, strides_;
  T* data_;
  std::size_t count_;
};

/// Returns a tensor over memory of the caller, which `owner` keeps alive. Without an owner, the memory must outlive the
/// tensor, its views and all values computed from them. The caller must not write it while the tensor may be read.
/// Writes to the tensor do not modify it.
///
/// Errors   ShapeError FM1017 if the sizes do not multiply to the number of elements.
template <class T> Tensor borrow(std::span<const T> elements, const IntegerList& sizes,
                                 std::shared_ptr<const void> owner = {}, Location where = Location::current()) {
  return detail::tensor_over_memory(elements.data(), elements.size(), dtype_of<T>, sizes, std::move(owner), where);
}
/// Returns a tensor that takes ownership of the vector and its elements.
template <class T>
requires(!std::same_as<T, bool>) Tensor
    adopt(std::vector<T>&& elements, const IntegerList& sizes, Location where = Location::current()) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(elements));
  return borrow(std::span<const T>(*owner), sizes, owner, where);
}

}  // namespace fermata
