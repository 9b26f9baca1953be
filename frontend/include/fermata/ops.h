// Operations on tensors: pointwise ops and their operators, casts, products, joins and gathers.
//
// Operands are tensors or C++ numbers, and broadcast against each other. The dtypes of tensors with axes promote as in
// the Python array API 2023.12. Numbers and 0-d tensors take part by kind only (bool, integers, floats, complex), as in
// PyTorch: x * 2.0 leaves an f16 tensor f16, so does x * y for a 0-d y of f64, and an i32 x becomes f32 or the dtype of
// y. 0-d tensors among themselves promote as others do. result_type(x, y) (fermata/dtypes.h) gives the dtype. Errors
// name the line of the call: ShapeError where shapes do not broadcast, DTypeError where the op is not defined for the
// dtype, ValueError FM1329 for a number that an integer tensor cannot hold (u8 beside -1).
#pragma once

#include <initializer_list>
#include <span>

#include "ir/op.h"
#include "runtime/operand.h"

namespace fermata {

namespace detail {
// Calls of pointwise ops, which may take over operands that were made from temporaries.
Tensor pointwise(Op op, const Operand& x);
Tensor pointwise(Op op, const Operand& lhs, const Operand& rhs);
Tensor pointwise(Op op, const Operand& condition, const Operand& x, const Operand& y);
}  // namespace detail

// One function per row of the op table (ir/ops/*.def), which has the formula, the dtype rule and one line on each:
//   exp(x), tanh(x), isnan(x), ...   add(lhs, rhs), maximum(lhs, rhs), less(lhs, rhs), ...   where(condition, x, y)
// `fermata ops NAME` prints a row. pow(x, e) with the number 2, 3, 0.5 or -1 as e computes square(x), x * x * x,
// sqrt(x) or reciprocal(x) where x is floating: the one place where a number decides what is computed.
#define FERMATA_UNARY(name, rule, formula, vjp, doc) \
  inline Tensor name(Operand x) { return detail::pointwise(Op::name, x); }
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  inline Tensor name(Operand lhs, Operand rhs) { return detail::pointwise(Op::name, lhs, rhs); }
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  inline Tensor name(Operand condition, Operand x, Operand y) { return detail::pointwise(Op::name, condition, x, y); }
#include "ir/ops.def"

inline Tensor operator+(Operand lhs, Operand rhs) { return detail::pointwise(Op::add, lhs, rhs); }
inline Tensor operator-(Operand lhs, Operand rhs) { return detail::pointwise(Op::subtract, lhs, rhs); }
inline Tensor operator*(Operand lhs, Operand rhs) { return detail::pointwise(Op::multiply, lhs, rhs); }
/// True division, of integers too.
inline Tensor operator/(Operand lhs, Operand rhs) { return detail::pointwise(Op::divide, lhs, rhs); }
/// remainder(): the sign of the right-hand side, as in Python.
inline Tensor operator%(Operand lhs, Operand rhs) { return detail::pointwise(Op::remainder, lhs, rhs); }
inline Tensor operator-(Operand x) { return detail::pointwise(Op::negative, x); }
inline Tensor operator==(Operand lhs, Operand rhs) { return detail::pointwise(Op::equal, lhs, rhs); }
inline Tensor operator!=(Operand lhs, Operand rhs) { return detail::pointwise(Op::not_equal, lhs, rhs); }
inline Tensor operator<(Operand lhs, Operand rhs) { return detail::pointwise(Op::less, lhs, rhs); }
inline Tensor operator<=(Operand lhs, Operand rhs) { return detail::pointwise(Op::less_equal, lhs, rhs); }
inline Tensor operator>(Operand lhs, Operand rhs) { return detail::pointwise(Op::greater, lhs, rhs); }
inline Tensor operator>=(Operand lhs, Operand rhs) { return detail::pointwise(Op::greater_equal, lhs, rhs); }
inline Tensor operator&(Operand lhs, Operand rhs) { return detail::pointwise(Op::bitwise_and, lhs, rhs); }
inline Tensor operator|(Operand lhs, Operand rhs) { return detail::pointwise(Op::bitwise_or, lhs, rhs); }
inline Tensor operator^(Operand lhs, Operand rhs) { return detail::pointwise(Op::bitwise_xor, lhs, rhs); }
inline Tensor operator~(Operand x) { return detail::pointwise(Op::bitwise_invert, x); }
inline Tensor operator!(Operand x) { return detail::pointwise(Op::logical_not, x); }
inline Tensor operator<<(Operand lhs, Operand rhs) { return detail::pointwise(Op::bitwise_left_shift, lhs, rhs); }
inline Tensor operator>>(Operand lhs, Operand rhs) { return detail::pointwise(Op::bitwise_right_shift, lhs, rhs); }

/// minimum(maximum(x, low), high); NaN stays NaN.
Tensor clip(const Operand& x, const Operand& low, const Operand& high);

/// The same values in another dtype. Gives x itself, not a copy, if it has that dtype.
///
/// DType    any real dtype or bool to any other. Floats to integers: towards zero, out of range to the nearest limit,
///          NaN to 0. To bool: non-zero is true.
Tensor astype(const Tensor& x, DType dtype, Location where = Location::current());
/// The same values in a buffer of their own.
Tensor copy(const Tensor& x, Location where = Location::current());

/// Multiplies matrices over the last axis of `lhs` and the second-last of `rhs`.
///
/// Shapes   lhs [..B, M, K], rhs [..B, K, N] -> [..B, M, N]; batch axes broadcast. A vector on the left is a row, on
/// the
///          right a column, and that axis is absent from the result.
/// DType    real; result is the promotion of both; f16 and bf16 accumulate in f32.
/// Errors   ShapeError if K differs, batch axes do not broadcast or an operand is 0-d; DTypeError for bool.
/// Source   Python array API 2023.12, matmul.
Tensor matmul(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
/// The sum of products of two vectors.
Tensor dot(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());

/// Joins tensors one after another along an axis.
///
/// Shapes   equal but for that axis. DType the promotion of all.
/// Errors   ShapeError if they differ elsewhere or there are none; IndexError for an axis out of range.
Tensor concat(std::span<const Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor concat(std::initializer_list<Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
/// Joins tensors of one shape along a new axis, which is `axis` of the result.
Tensor stack(std::span<const Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());

/// Slices of x at integer positions along an axis, which is replaced by the axes of `index`.
///
/// Shapes   x [..A, N, ..B], index [..I] -> [..A, ..I, ..B].
/// Errors   DTypeError unless index has an integer dtype. Positions count from the end where negative; one out of range
///          is an IndexError when the value is computed.
Tensor take(const Tensor& x, const Tensor& index, std::int64_t axis = 0, Location where = Location::current());
/// x with the slices of `source` added at integer positions along an axis; positions may repeat.
///
/// Shapes   x [..A, N, ..B], index [..I], source [..A, ..I, ..B] -> the shape of x. DType that of x; source is cast.
Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
                 Location where = Location::current());

/// The elements on and below diagonal k (0 is the main one, positive ones lie above it) of the last two axes; 0 above.
Tensor tril(const Tensor& x, std::int64_t k = 0, Location where = Location::current());
/// The elements on and above diagonal k; 0 below.
Tensor triu(const Tensor& x, std::int64_t k = 0, Location where = Location::current());

}  // namespace fermata
