// Element types under their NumPy and PyTorch names, type promotion, and numeric limits.
#pragma once

#include <initializer_list>
#include <string_view>

#include "runtime/operand.h"

namespace fermata {

inline constexpr DType float16 = DType::f16, bfloat16 = DType::bf16, float32 = DType::f32, float64 = DType::f64;
inline constexpr DType int8 = DType::i8, int16 = DType::i16, int32 = DType::i32, int64 = DType::i64;
inline constexpr DType uint8 = DType::u8, uint16 = DType::u16, uint32 = DType::u32, uint64 = DType::u64;
inline constexpr DType bool_ = DType::boolean, complex64 = DType::c64, complex128 = DType::c128;

// Storage formats: they can be stored, moved and converted. Arithmetic converts them to f32, i8 or u8 (docs/dtypes.md).
inline constexpr DType float8_e4m3fn = DType::f8e4m3fn, float8_e5m2 = DType::f8e5m2,
                       float8_e4m3fnuz = DType::f8e4m3fnuz, float8_e5m2fnuz = DType::f8e5m2fnuz,
                       float4_e2m1fn = DType::f4e2m1fn, float8_e8m0fnu = DType::f8e8m0fnu;
inline constexpr DType int4 = DType::i4, uint4 = DType::u4, int2 = DType::i2, uint2 = DType::u2;

/// The promoted dtype of operands of these dtypes that have axes.
///
/// Errors   DTypeError if no dtype holds both, such as u64 and a signed integer.
/// Source   Python array API 2023.12, result_type; mixed kinds as in PyTorch.
DType result_type(std::initializer_list<DType> dtypes, Location where = Location::current());
/// The promoted dtype of two operands. 0-d tensors and host numbers contribute only their kind, as in every op
/// (fermata/ops.h).
DType result_type(const Operand& lhs, const Operand& rhs);
/// Whether promotion of `from` and `to` gives `to`.
bool can_cast(DType from, DType to);
/// Whether a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex
/// floating" or "numeric". Small dtypes belong to none of them. ValueError for any other name. Source: Python array API
/// 2023.12, isdtype.
bool isdtype(DType dtype, std::string_view kind, Location where = Location::current());

struct FloatInfo {
  int bits;
  double eps;       // distance from 1 to the next larger number
  double max, min;  // finite
  double smallest_normal;
  DType dtype;
};
/// Limits of a floating dtype, or of the parts of a complex one, including small dtypes; DTypeError for others.
FloatInfo finfo(DType dtype, Location where = Location::current());
/// The next representable number after x in the direction of `towards`: `towards` itself if they are equal, NaN if
/// either is NaN.
///
/// Shapes   broadcast. DType floating after promotion; integers and bool become f32.
/// Errors   GradientError if a gradient is requested: it has no derivative.
/// Source   Python array API 2024.12, nextafter.
Tensor nextafter(const Operand& x, const Operand& towards);
struct IntegerInfo {
  int bits;
  std::uint64_t max;
  std::int64_t min;
  DType dtype;
};
/// Limits of an integer dtype, including small dtypes; DTypeError for others.
IntegerInfo iinfo(DType dtype, Location where = Location::current());

}  // namespace fermata
