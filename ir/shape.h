// Shapes: up to kMaxRank 64-bit sizes, with the overflow checks that every size passes once.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "ir/dtype.h"

namespace fermata {

inline constexpr unsigned kMaxRank = 16;

/// Sizes (or strides, or axis lists) stored inline, without allocation. Every call makes and copies some, so the
/// entries beyond the rank are neither cleared nor copied.
class Shape {
 public:
  Shape() {}  // not constexpr: g++ would take an array of them for a constant, and clear all of it
  constexpr Shape(const Shape& o) : rank_(o.rank_) { copy_dims(o); }
  constexpr Shape& operator=(const Shape& o) {
    rank_ = o.rank_;
    copy_dims(o);
    return *this;
  }
  constexpr ~Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  /// Keeps the first kMaxRank sizes; higher ranks are rejected where shapes enter the engine (ir/infer.h).
  constexpr explicit Shape(std::span<const std::int64_t> sizes) {
    for (const std::int64_t s : sizes)
      if (rank_ < kMaxRank) dims_[rank_++] = s;
  }
  constexpr unsigned rank() const { return rank_; }
  constexpr bool empty() const { return rank_ == 0; }
  constexpr std::size_t size() const { return rank_; }
  constexpr std::int64_t operator[](std::size_t i) const { return dims_[i]; }
  constexpr std::int64_t& operator[](std::size_t i) { return dims_[i]; }
  constexpr std::int64_t back() const { return dims_[rank_ - 1u]; }
  constexpr const std::int64_t* begin() const { return dims_.data(); }
  constexpr const std::int64_t* end() const { return dims_.data() + rank_; }
  constexpr std::int64_t* begin() { return dims_.data(); }
  constexpr std::int64_t* end() { return dims_.data() + rank_; }
  constexpr const std::int64_t* data() const { return dims_.data(); }
  constexpr void push_back(std::int64_t s) { dims_[rank_++] = s; }
  constexpr operator std::span<const std::int64_t>() const { return {dims_.data(), rank_}; }
  constexpr bool operator==(const Shape& o) const {
    if (rank_ != o.rank_) return false;
    for (unsigned i = 0; i < rank_; ++i)
      if (dims_[i] != o.dims_[i]) return false;
    return true;
  }

 private:
  constexpr void copy_dims(const Shape& o) {
    for (unsigned i = 0; i < rank_; ++i) dims_[i] = o.dims_[i];
  }

  std::array<std::int64_t, kMaxRank> dims_;
  std::uint8_t rank_ = 0;
};

/// Product of the sizes; nullopt if it (or any partial product that skips zero sizes) overflows 64 bits.
std::optional<std::int64_t> checked_element_count(std::span<const std::int64_t> sizes);
/// Product of sizes that passed checked_element_count.
std::int64_t element_count(std::span<const std::int64_t> sizes);
/// Row-major strides in elements.
Shape dense_strides(std::span<const std::int64_t> sizes);
/// The last axis whose elements lie beside each other: with stride 1. -1 if there is none.
int last_unit_axis(std::span<const std::int64_t> strides);
/// True if elements lie in row-major order without gaps (axes of size 1 may have any stride).
bool is_dense(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);
/// The broadcast shape of two, aligned to the right; nullopt if an axis differs and neither size is 1.
std::optional<Shape> broadcast_shapes(std::span<const std::int64_t> a, std::span<const std::int64_t> b);
/// Bit i: result axis i stretches (or prepends) an axis of `operand`.
std::uint16_t stretched_axes(std::span<const std::int64_t> operand, std::span<const std::int64_t> result);
/// Strides of the same elements under another shape; nullopt if no strides can express it.
std::optional<Shape> reshape_strides(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                                     std::span<const std::int64_t> new_sizes);

/// "[4, 8]".
std::string to_string(std::span<const std::int64_t> sizes);
inline std::string to_string(const Shape& s) { return to_string(std::span<const std::int64_t>(s)); }
/// "f32[4, 8]".
std::string to_string(DType dtype, std::span<const std::int64_t> sizes);

}  // namespace fermata
