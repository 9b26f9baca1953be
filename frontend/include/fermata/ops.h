// Operations on tensors: pointwise ops and their C++ operators, casts, matrix products, concatenation and gathers.
//
// Operands are tensors or C++ numbers, and broadcast against each other. The dtypes of tensors with axes promote as in
// the Python array API 2023.12. Numbers and 0-d tensors contribute only their kind (bool, integer, floating, complex),
// as in PyTorch: x * 2.0 and x * y with a 0-d f64 y keep an f16 x in f16, and convert an i32 x to f32 or the dtype of
// y. 0-d tensors promote normally among themselves. result_type(x, y) (fermata/dtypes.h) returns the promoted dtype.
// Errors name the line of the call: ShapeError if shapes do not broadcast, DTypeError if the op is not defined for the
// dtype, ValueError FM1329 for a number that does not fit an integer tensor (u8 with -1).
#pragma once

#include <initializer_list>
#include <span>

#include "ir/op.h"
#include "runtime/operand.h"

namespace fermata {

namespace detail {
// Calls of pointwise ops, which may reuse the buffers of operands that are temporaries.
Tensor pointwise(Op op, const Operand& x);
Tensor pointwise(Op op, const Operand& lhs, const Operand& rhs);
Tensor pointwise(Op op, const Operand& condition, const Operand& x, const Operand& y);
}  // namespace detail

// One function per row of the op table (ir/ops/*.def), which has the formula, the dtype rule and a one-line
// description:
//   exp(x), tanh(x), isnan(x), ...   add(lhs, rhs), maximum(lhs, rhs), less(lhs, rhs), ...   where(condition, x, y)
// `fermata ops NAME` prints a row. pow(x, e) with the number 2, 3, 0.5 or -1 as e computes square(x), x * x * x,
// sqrt(x) or reciprocal(x) for floating x. No other function chooses its formula by the value of a number.
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
/// True division, also for integers.
inline Tensor operator/(Operand lhs, Operand rhs) { return detail::pointwise(Op::divide, lhs, rhs); }
/// remainder(): the result has the sign of the right operand, as in Python.
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

/// Converts x to another dtype. Returns x itself, not a copy, if it has that dtype.
///
/// DType    any real dtype or bool to any other. Floats to integers round towards zero and saturate; NaN becomes 0. To
///          bool: non-zero is true.
Tensor astype(const Tensor& x, DType dtype, Location where = Location::current());
inline Tensor astype(Tensor&& x, DType dtype, Location where = Location::current()) {
  return detail::consumed(x, astype(std::as_const(x), dtype, where));
}
/// Copies x to a new buffer.
Tensor copy(const Tensor& x, Location where = Location::current());

/// Multiplies matrices over the last axis of `lhs` and the second-last of `rhs`.
///
/// Shapes   lhs [..B, M, K], rhs [..B, K, N] -> [..B, M, N]; batch axes broadcast. A vector on the left is a row, on
///          the right a column, and that axis is absent from the result.
/// DType    real; result is the promotion of both; f16 and bf16 accumulate in f32.
/// Errors   ShapeError if K differs, batch axes do not broadcast or an operand is 0-d; DTypeError for bool.
/// Source   Python array API 2023.12, matmul.
Tensor matmul(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
// A product of temporaries ends their handles: matmul(softmax(matmul(q, k.mT()) * s), v).sync() never has all scores.
inline Tensor matmul(Tensor&& lhs, const Tensor& rhs, Location where = Location::current()) {
  return detail::consumed(lhs, matmul(std::as_const(lhs), rhs, where));
}
inline Tensor matmul(const Tensor& lhs, Tensor&& rhs, Location where = Location::current()) {
  return detail::consumed(rhs, matmul(lhs, std::as_const(rhs), where));
}
inline Tensor matmul(Tensor&& lhs, Tensor&& rhs, Location where = Location::current()) {
  return detail::consumed(lhs, matmul(std::as_const(lhs), std::move(rhs), where));
}
/// Dot product of two vectors.
Tensor dot(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());

/// Concatenates tensors along an axis.
///
/// Shapes   equal except along that axis. DType the promotion of all.
/// Errors   ShapeError if other sizes differ or the list is empty; IndexError for an axis out of range.
Tensor concat(std::span<const Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor concat(std::initializer_list<Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
/// Stacks tensors of one shape along a new axis, which is `axis` of the result.
Tensor stack(std::span<const Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());

/// Gathers slices of x by integer indices along an axis, which is replaced by the axes of `index`.
///
/// Shapes   x [..A, N, ..B], index [..I] -> [..A, ..I, ..B].
/// Errors   DTypeError unless index has an integer dtype. Negative indices count from the end; an index out of range is
///          an IndexError when the value is computed.
Tensor take(const Tensor& x, const Tensor& index, std::int64_t axis = 0, Location where = Location::current());
/// Returns x with the slices of `source` added at integer indices along an axis; indices may repeat.
///
/// Shapes   x [..A, N, ..B], index [..I], source [..A, ..I, ..B] -> the shape of x. DType that of x; source is cast.
Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis = 0,
                 Location where = Location::current());

/// Lower triangle of the last two axes: zeroes elements above diagonal k (0 is the main one, positive k is above it).
Tensor tril(const Tensor& x, std::int64_t k = 0, Location where = Location::current());
/// Upper triangle: zeroes elements below diagonal k.
Tensor triu(const Tensor& x, std::int64_t k = 0, Location where = Location::current());

}  // namespace fermata
