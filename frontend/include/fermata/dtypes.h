// Element types under the names of NumPy and PyTorch, how they combine, and the limits of their values.
#pragma once

#include <initializer_list>
#include <string_view>

#include "runtime/operand.h"

namespace fermata {

inline constexpr DType float16 = DType::f16, bfloat16 = DType::bf16, float32 = DType::f32, float64 = DType::f64;
inline constexpr DType int8 = DType::i8, int16 = DType::i16, int32 = DType::i32, int64 = DType::i64;
inline constexpr DType uint8 = DType::u8, uint16 = DType::u16, uint32 = DType::u32, uint64 = DType::u64;
inline constexpr DType bool_ = DType::boolean, complex64 = DType::c64, complex128 = DType::c128;

// Stored, moved and converted; whatever computes takes them as f32, i8 and u8 (docs/dtypes.md).
inline constexpr DType float8_e4m3fn = DType::f8e4m3fn, float8_e5m2 = DType::f8e5m2,
                       float8_e4m3fnuz = DType::f8e4m3fnuz, float8_e5m2fnuz = DType::f8e5m2fnuz,
                       float4_e2m1fn = DType::f4e2m1fn, float8_e8m0fnu = DType::f8e8m0fnu;
inline constexpr DType int4 = DType::i4, uint4 = DType::u4, int2 = DType::i2, uint2 = DType::u2;

/// The dtype that operands of these dtypes, with axes, compute in.
///
/// Errors   DTypeError where no dtype holds both, as of u64 with a signed integer.
/// Source   Python array API 2023.12, result_type; mixed kinds as in PyTorch.
DType result_type(std::initializer_list<DType> dtypes, Location where = Location::current());
/// The dtype that two operands compute in: 0-d tensors and host numbers count by kind only, as in every op
/// (fermata/ops.h).
DType result_type(const Operand& lhs, const Operand& rhs);
/// True if every kind of value of `from` is one of `to`: promotion of the two gives `to`.
bool can_cast(DType from, DType to);
/// True if a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
/// "complex floating" or "numeric"; small dtypes are of none of them. ValueError for another name. Source array API
/// 2023.12, isdtype.
bool isdtype(DType dtype, std::string_view kind, Location where = Location::current());

struct FloatInfo {
  int bits;
  double eps;       // from 1 to the next number above
  double max, min;  // finite
  double smallest_normal;
  DType dtype;
};
/// Of a floating or complex dtype (its parts), small ones among them; DTypeError for others.
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
/// Of an integer dtype, small ones among them; DTypeError for others.
IntegerInfo iinfo(DType dtype, Location where = Location::current());

}  // namespace fermata
