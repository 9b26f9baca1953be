// The position operand of take and index_add, checked and made plain; and a scratch buffer.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "ir/shape.h"
#include "runtime/allocator.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Uninitialized elements for the length of a call.
template <class T> class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : allocation_(allocate_bytes(static_cast<std::size_t>(count) * sizeof(T))), count_(count) {}
  Scratch(Scratch&& other) noexcept
      : allocation_(std::exchange(other.allocation_, {})), count_(std::exchange(other.count_, 0)) {}
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(allocation_, other.allocation_), std::swap(count_, other.count_);
    return *this;
  }
  ~Scratch() {
    if (allocation_.data != nullptr) release_bytes(allocation_);
  }
  T* data() const { return static_cast<T*>(allocation_.data); }
  T& operator[](std::int64_t i) const { return data()[i]; }
  std::int64_t size() const { return count_; }

 private:
  Allocation allocation_;
  std::int64_t count_;
};

/// The positions of a call: the memory of the operand where none of them has to be converted, else a copy.
class Positions {
 public:
  explicit Positions(std::span<const std::int64_t> given) : copy_(0), data_(given.data()), count_(given.size()) {}
  explicit Positions(Scratch<std::int64_t> copy)
      : copy_(std::move(copy)), data_(copy_.data()), count_(static_cast<std::size_t>(copy_.size())) {}
  const std::int64_t* data() const { return data_; }
  std::int64_t operator[](std::int64_t i) const { return data_[i]; }
  std::int64_t size() const { return static_cast<std::int64_t>(count_); }

 private:
  Scratch<std::int64_t> copy_;
  const std::int64_t* data_;
  std::size_t count_;
};

/// The positions in row-major order, negative ones counted from the end of the axis of input 0 that the call names.
/// IndexError FM1204 for the first one out of range. Only those of the first `axes` axes where they are the same along
/// the others.
Positions positions_of(const CallArgs& args, unsigned axes = kMaxRank);

/// The same a part at a time, so that a part stays in the first-level cache.
class PositionReader {
 public:
  static constexpr std::int64_t kPart = 2048;
  explicit PositionReader(const CallArgs& args);
  /// Positions [begin, begin + count) in row-major order; false where one of them is out of range.
  bool read(std::int64_t begin, std::int64_t count, std::int64_t* to) const;
  /// The same in `room`, or where the operand has them as they are wanted; null where one of them is out of range.
  const std::int64_t* find(std::int64_t begin, std::int64_t count, std::int64_t* room) const;
  /// All of them as bytes, where they are u8 or i8; else null. Position that a byte stands for, -1 where it is out of
  /// range.
  const std::uint8_t* bytes() const {
    return dtype_ == DType::u8 || dtype_ == DType::i8 ? static_cast<const std::uint8_t*>(data_) : nullptr;
  }
  bool are_signed() const { return dtype_ == DType::i8; }
  std::int64_t position_of(std::uint8_t byte) const {
    const std::int64_t given = dtype_ == DType::i8 ? static_cast<std::int8_t>(byte) : byte,
                       at = given < 0 ? given + size_ : given;
    return at >= 0 && at < size_ ? at : -1;
  }
  /// All of them as they are given, negative or out of range, where that needs no conversion; else null.
  const std::int64_t* given() const { return dtype_ == DType::i64 ? static_cast<const std::int64_t*>(data_) : nullptr; }

 private:
  DType dtype_;
  std::int64_t size_;
  Scratch<std::byte> packed_;
  const void* data_;
};

/// Offsets, in elements, of every combination of the axes [begin, end) of a view, in row-major order.
Scratch<std::int64_t> offsets_of(const TensorView& view, unsigned begin, unsigned end);
/// The same without a table where they are evenly spaced.
class Offsets {
 public:
  Offsets(const TensorView& view, unsigned begin, unsigned end);
  std::int64_t operator[](std::int64_t i) const { return step_ >= 0 ? i * step_ : table_[i]; }
  std::int64_t size() const { return count_; }
  bool are_even() const { return step_ >= 0; }

 private:
  std::int64_t count_, step_;  // -1 where there is a table
  Scratch<std::int64_t> table_;
};

/// True if offsets_of(view, begin, end) would be 0, 1, 2, ...
bool is_contiguous(const TensorView& view, unsigned begin, unsigned end);

/// How x, the positions and the elements along them line up: [outer, axis, inner].
struct GatherShape {
  unsigned axis;
  std::int64_t outer, size, inner, positions;
};
GatherShape gather_shape(const CallArgs& args);

}  // namespace fermata
