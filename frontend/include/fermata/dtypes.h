// Questions about element types: how they combine, and the limits of their values.
#pragma once

#include <initializer_list>
#include <string_view>

#include "runtime/operand.h"

namespace fermata {

/// The dtype that operands of these dtypes compute in. Host numbers count by kind only.
///
/// Errors   DTypeError where no dtype holds both, as of u64 with a signed integer.
/// Source   Python array API 2023.12, result_type; mixed kinds as in PyTorch.
DType result_type(std::initializer_list<DType> dtypes, Location where = Location::current());
DType result_type(const Operand& lhs, const Operand& rhs);
/// True if every kind of value of `from` is one of `to`: promotion of the two gives `to`.
bool can_cast(DType from, DType to);
/// True if a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
/// "complex floating" or "numeric". ValueError for another name. Source array API 2023.12, isdtype.
bool isdtype(DType dtype, std::string_view kind, Location where = Location::current());

struct FloatInfo {
  int bits;
  double eps;       // from 1 to the next number above
  double max, min;  // finite
  double smallest_normal;
  DType dtype;
};
/// Of a floating or complex dtype (its parts); DTypeError for others.
FloatInfo finfo(DType dtype, Location where = Location::current());
/// The number of its dtype after x in the direction of another: towards itself where they are equal, NaN where either
/// is.
///
/// Shapes   broadcast. DType floating after promotion; integers and bool become f32.
/// Errors   GradientError where a gradient is wanted: it has no derivative.
/// Source   Python array API 2024.12, nextafter.
Tensor nextafter(const Operand& x, const Operand& towards);
struct IntegerInfo {
  int bits;
  std::uint64_t max;
  std::int64_t min;
  DType dtype;
};
/// Of an integer dtype; DTypeError for others.
IntegerInfo iinfo(DType dtype, Location where = Location::current());

}  // namespace fermata
