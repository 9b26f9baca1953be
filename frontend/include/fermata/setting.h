// Settings: numbers that a program may change at any time, even if compiled functions use them.
//
// A plain number that a compiled function captures is a constant. A Setting is read at every call. In calls on tensors
// it is an ordinary operand. If the function reads its value, for example in a condition, the value becomes part of the
// function's key, and another value records the function again. Optimizer options are Settings. docs/modes.md has
// examples.
#pragma once

#include <concepts>
#include <type_traits>

#include "runtime/tensor.h"

namespace fermata {

/// A host number in double precision, copied by value; a bool as 0 or 1.
class Setting {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Setting(T value, Location where = Location::current())
      : value_(static_cast<double>(value)), where_(where) {}
  Setting(const Setting& other) : value_(other.value_), where_(other.where_) {}
  /// Errors   UserError FM1703 inside a function that is being compiled: replays would not set it.
  Setting& operator=(const Setting& other);
  Setting& operator+=(const Setting& other) { return *this = Setting(value_ + other.value_, other.where_); }
  Setting& operator-=(const Setting& other) { return *this = Setting(value_ - other.value_, other.where_); }
  Setting& operator*=(const Setting& other) { return *this = Setting(value_ * other.value_, other.where_); }
  Setting& operator/=(const Setting& other) { return *this = Setting(value_ / other.value_, other.where_); }

  /// Returns the value. While a function is being compiled, the value becomes part of its key.
  operator double() const { return read(false); }
  /// Whether the value is non-zero, as in `if (momentum)`; only this answer becomes part of the key.
  explicit operator bool() const { return read(true) != 0; }
  /// Returns a 0-d f64 tensor that always has the current value.
  const Tensor& tensor() const;

 private:
  double read(bool only_zero) const;
  double value_;
  Location where_;       // where the value was set
  mutable Tensor cell_;  // created by tensor()
};

namespace detail {

/// The tensor operand of a call with a Setting, and the line of the call.
struct TensorWithLocation {
  TensorWithLocation(const Tensor& x, Location line = Location::current()) : tensor(x), where(line) {}
  const Tensor& tensor;
  Location where;
};
Tensor call_with_setting(Op op, const TensorWithLocation& x, const Setting& s, bool setting_first);

}  // namespace detail

// The dtype is as with a plain number: that of the tensor, f32 for integers. These are templates so that plain numbers
// do not convert to Setting.
template <std::same_as<Setting> S> Tensor operator+(const detail::TensorWithLocation& x, const S& s) {
  return detail::call_with_setting(Op::add, x, s, false);
}
template <std::same_as<Setting> S> Tensor operator+(const S& s, const detail::TensorWithLocation& x) {
  return detail::call_with_setting(Op::add, x, s, true);
}
template <std::same_as<Setting> S> Tensor operator-(const detail::TensorWithLocation& x, const S& s) {
  return detail::call_with_setting(Op::subtract, x, s, false);
}
template <std::same_as<Setting> S> Tensor operator-(const S& s, const detail::TensorWithLocation& x) {
  return detail::call_with_setting(Op::subtract, x, s, true);
}
template <std::same_as<Setting> S> Tensor operator*(const detail::TensorWithLocation& x, const S& s) {
  return detail::call_with_setting(Op::multiply, x, s, false);
}
template <std::same_as<Setting> S> Tensor operator*(const S& s, const detail::TensorWithLocation& x) {
  return detail::call_with_setting(Op::multiply, x, s, true);
}
template <std::same_as<Setting> S> Tensor operator/(const detail::TensorWithLocation& x, const S& s) {
  return detail::call_with_setting(Op::divide, x, s, false);
}
template <std::same_as<Setting> S> Tensor operator/(const S& s, const detail::TensorWithLocation& x) {
  return detail::call_with_setting(Op::divide, x, s, true);
}

}  // namespace fermata
