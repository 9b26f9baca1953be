// Quantized tensors: bytes that stand for floats. With a scale s and a zero point z, byte b means s * (b - z).
//
// Scale and zero point are tensors, one number or one per channel along an axis. dtypes are qi8 (bytes -128 to 127) and
// qu8 (0 to 255). A quantized tensor is made of three dense ones, which are recorded like any others; as a whole it
// goes to kernels of its own: matmul, linear, relu, views, add. An op without one says so. See docs/quantized.md.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/operand.h"

namespace fermata {

/// How bytes become floats.
struct Quantization {
  Tensor scale;                      // f32, [] or [channels]
  Tensor zero_point;                 // i32, of the shape of scale
  std::optional<std::int64_t> axis;  // of the channels
};

/// round_half_to_even(x / scale) + zero_point, saturated to the bytes of `dtype`; x is computed in f32, and NaN becomes
/// the zero point. With an axis, scale and zero point hold a number for each position along it.
///
/// Shapes   x [..], scale and zero_point [] or [channels] -> the shape of x.
/// DType    x floating, zero_point an integer; the result is qi8 or qu8.
/// Errors   DTypeError, ShapeError; ValueError for a host scale that is not positive and finite, or a host zero
///          point that is no byte. Not differentiable: a backward pass through it is a GradientError; detach() what
///          needs no gradient.
Tensor quantize(const Tensor& x, const Operand& scale, const Operand& zero_point = 0, DType dtype = DType::qi8,
                std::optional<std::int64_t> axis = {}, Location where = Location::current());
Tensor quantize(const Tensor& x, const Quantization& how, DType dtype = DType::qi8,
                Location where = Location::current());
/// Scales and zero points that cover all of x, per tensor or per channel. `symmetric` keeps the zero point in the
/// middle, as products want it of weights. Nothing is read: the numbers are recorded.
Quantization fit_quantization(const Tensor& x, DType dtype = DType::qi8, std::optional<std::int64_t> axis = {},
                              bool symmetric = false, Location where = Location::current());
/// scale * (byte - zero_point) in f32.
Tensor dequantize(const Tensor& x, Location where = Location::current());

/// A quantized tensor over bytes that are there already: i8 becomes qi8, u8 qu8.
Tensor quantized(const Tensor& bytes, const Operand& scale, const Operand& zero_point = 0,
                 std::optional<std::int64_t> axis = {}, Location where = Location::current());
/// The bytes of a quantized tensor, i8 or u8.
Tensor int_repr(const Tensor& x, Location where = Location::current());
Quantization quantization_of(const Tensor& x, Location where = Location::current());

/// matmul, linear and add of quantized operands give f32; these give quantized results, with the bits of quantizing
/// that f32 result.
///
/// Shapes   as those of matmul, linear and add.
/// Errors   as those of quantize(); UnsupportedError for channels along another axis than the columns of the result.
Tensor quantized_matmul(const Tensor& lhs, const Tensor& rhs, const Operand& scale, const Operand& zero_point = 0,
                        DType dtype = DType::qi8, Location where = Location::current());
Tensor quantized_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Operand& scale,
                        const Operand& zero_point = 0, DType dtype = DType::qi8, Location where = Location::current());
Tensor quantized_add(const Tensor& lhs, const Tensor& rhs, const Operand& scale, const Operand& zero_point = 0,
                     DType dtype = DType::qi8, Location where = Location::current());

// Weights alone. A matrix of weights in 8 or 4 bits is to everybody a floating tensor of its former dtype, whose
// elements are codes times scales: linear(x, w) and take(w, index), and so embedding(index, w), read the codes as they
// lie; what x is stays as it is, and its gradient is that of a product with those elements. slice() cuts it between
// blocks of 32 rows, astype() to a floating dtype changes that of its values, dequantize() gives a dense tensor.

struct WeightFormat {
  std::int64_t bits = 8;    // 8: a scale for each row; 4: a scale for each group of a row
  std::int64_t group = 32;  // with 4 bits: 32 or 64
};
/// A copy of a matrix in fewer bits, made now. Symmetric: 8 bits are -127 to 127 times the scale (f32) that makes the
/// largest magnitude of the row 127, 4 bits -8 to 7 times the scale (bf16) that makes it -8. It has no gradient.
///
/// Shapes   weight [out, in] -> [out, in]; 4 bits pad `in` to whole groups in memory.
/// DType    f16, bf16 or f32, which the result keeps.
/// Errors   ValueError FM1350 for other bits or groups, and for weights that are not finite; ShapeError unless it is
///          a matrix; DTypeError.
Tensor quantize_weight(const Tensor& weight, const WeightFormat& format = {}, Location where = Location::current());
/// The same parameters with those of two axes quantized, in their order.
std::vector<Tensor> quantize_weights(std::span<const Tensor> parameters, const WeightFormat& format = {},
                                     Location where = Location::current());
/// Whether a tensor is what quantize_weight() gives.
bool has_quantized_weights(const Tensor& x, Location where = Location::current());

}  // namespace fermata
