// Element access of the reference evaluation.
//
// Internal to ir/reference*.cpp. Elements are passed as slots (ir/scalar_interpreter.h) of a compute dtype; a
// ReferenceTensor stores them as f64, i64 or, for u64, its bits.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "ir/graph.h"
#include "ir/scalar_interpreter.h"

namespace fermata {

/// Floats of any width are stored as f64.
constexpr bool keeps_floats(DType t) { return is_floating(arithmetic_dtype(t)); }
/// The dtype in which a ReferenceTensor stores elements.
constexpr DType kept_dtype(DType t) { return keeps_floats(t) ? DType::f64 : t == DType::u64 ? DType::u64 : DType::i64; }

class ElementReader {
 public:
  ElementReader() = default;
  ElementReader(const ReferenceTensor& tensor, DType wanted)
      : tensor_(&tensor), convert_(prim_function(Prim::convert, wanted, kept_dtype(tensor.dtype))) {}
  bool is_empty() const { return tensor_ == nullptr; }
  std::uint64_t operator[](std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    const std::uint64_t kept = keeps_floats(tensor_->dtype) ? std::bit_cast<std::uint64_t>(tensor_->floats[at])
                                                            : static_cast<std::uint64_t>(tensor_->integers[at]);
    return convert_(kept, 0, 0);
  }

 private:
  const ReferenceTensor* tensor_ = nullptr;
  PrimFunction convert_ = nullptr;
};

class ElementWriter {
 public:
  /// `given` is the dtype of the slots passed to set().
  ElementWriter(DType dtype, const Shape& shape, DType given)
      : tensor_{dtype, shape, {}, {}},
        to_dtype_(prim_function(Prim::convert, dtype, given)),
        to_kept_(prim_function(Prim::convert, kept_dtype(dtype), is_floating(dtype) ? given : dtype)) {
    const auto count = static_cast<std::size_t>(element_count(shape));
    if (keeps_floats(dtype))
      tensor_.floats.resize(count);
    else
      tensor_.integers.resize(count);
  }
  void set(std::int64_t i, std::uint64_t slot) {
    const auto at = static_cast<std::size_t>(i);
    if (is_floating(tensor_.dtype))
      tensor_.floats[at] = std::bit_cast<double>(to_kept_(slot, 0, 0));
    else if (keeps_floats(tensor_.dtype))  // small floats: round to the nearest representable one
      tensor_.floats[at] = std::bit_cast<double>(to_kept_(to_dtype_(slot, 0, 0), 0, 0));
    else
      tensor_.integers[at] = static_cast<std::int64_t>(to_kept_(to_dtype_(slot, 0, 0), 0, 0));
  }
  ReferenceTensor take() { return std::move(tensor_); }

 private:
  ReferenceTensor tensor_;
  PrimFunction to_dtype_, to_kept_;
};

/// Iterates over the positions of a shape in row-major order.
class Odometer {
 public:
  explicit Odometer(const Shape& sizes) : sizes_(sizes), position_(sizes), count_(element_count(sizes)) {
    for (std::int64_t& p : position_) p = 0;
  }
  std::int64_t count() const { return count_; }
  std::int64_t operator[](std::size_t axis) const { return position_[axis]; }
  void next() {
    for (unsigned axis = sizes_.rank(); axis-- > 0;) {
      if (++position_[axis] < sizes_[axis]) return;
      position_[axis] = 0;
    }
  }
  std::int64_t offset(const Shape& strides) const {
    std::int64_t offset = 0;
    for (unsigned axis = 0; axis < sizes_.rank(); ++axis) offset += position_[axis] * strides[axis];
    return offset;
  }

 private:
  Shape sizes_, position_;
  std::int64_t count_;
};

/// Strides of a dense tensor broadcast to a shape.
inline Shape stretched_strides(const Shape& from, const Shape& to) {
  const Shape dense = dense_strides(from);
  Shape strides(to);
  const unsigned prepended = to.rank() - from.rank();
  for (unsigned axis = 0; axis < to.rank(); ++axis)
    strides[axis] = axis < prepended || from[axis - prepended] == 1 ? 0 : dense[axis - prepended];
  return strides;
}

// Regular ops and casts of complex numbers: reference_complex.cpp.
ReferenceTensor complex_pointwise(const Graph& graph, const GraphNode& node,
                                  const std::vector<ReferenceTensor>& values);
ReferenceTensor complex_reduce(const GraphNode& node, const ReferenceTensor& x);
ReferenceTensor complex_cast(const GraphNode& node, const ReferenceTensor& x);

}  // namespace fermata
