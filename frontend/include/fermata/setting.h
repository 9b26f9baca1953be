// Settings: numbers that a program may change at any time, compiled functions included.
//
// A plain number that a compiled function captures is part of it. A Setting is read at every call: in a call on tensors
// it is an operand like any other, and where the function asks for its value (in a condition, say) the value is part of
// the function's key, so that another one records the function again. The options of optimizers are Settings.
// docs/modes.md has examples.
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

  /// The value. While a function is compiled, it becomes a part of that function's key.
  operator double() const { return read(false); }
  /// Whether it is not 0, as in `if (momentum)`: only this answer becomes a part of that key.
  explicit operator bool() const { return read(true) != 0; }
  /// An f64 tensor of no axes that has the present value, whatever that is when it is read.
  const Tensor& tensor() const;

 private:
  double read(bool only_zero) const;
  double value_;
  Location where_;       // that gave the value
  mutable Tensor cell_;  // once a tensor was asked for
};

namespace detail {

/// A tensor beside a Setting, and the line of the call.
struct TensorWithLocation {
  TensorWithLocation(const Tensor& x, Location line = Location::current()) : tensor(x), where(line) {}
  const Tensor& tensor;
  Location where;
};
Tensor call_with_setting(Op op, const TensorWithLocation& x, const Setting& s, bool setting_first);

}  // namespace detail

// As with a plain number: the dtype is that of the tensor, f32 for integers. Templates, so that no other number becomes
// a Setting here.
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
