// Quantized tensors: bytes that represent floats. With scale s and zero point z, byte b represents s * (b - z).
//
// Scale and zero point are tensors: one number, or one per channel along an axis. The dtypes are qi8 (bytes -128 to
// 127) and qu8 (0 to 255). A quantized tensor consists of three dense tensors, which are recorded like any others.
// matmul, linear, relu, views and add have quantized kernels; other ops throw an error. See docs/quantized.md.
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
/// the zero point. With an axis, scale and zero point have one number per position along it.
///
/// Shapes   x [..], scale and zero_point [] or [channels] -> the shape of x.
/// DType    x floating, zero_point an integer; the result is qi8 or qu8.
/// Errors   DTypeError, ShapeError; ValueError for a host scale that is not positive and finite, or a host zero point
///          that does not fit a byte. Not differentiable: a backward pass through it is a GradientError; detach()
///          operands that need no gradient.
Tensor quantize(const Tensor& x, const Operand& scale, const Operand& zero_point = 0, DType dtype = DType::qi8,
                std::optional<std::int64_t> axis = {}, Location where = Location::current());
Tensor quantize(const Tensor& x, const Quantization& how, DType dtype = DType::qi8,
                Location where = Location::current());
/// Scales and zero points that cover the range of x, per tensor or per channel. `symmetric` centers the zero point,
/// which matrix products require of weights. Recorded; nothing is read.
Quantization fit_quantization(const Tensor& x, DType dtype = DType::qi8, std::optional<std::int64_t> axis = {},
                              bool symmetric = false, Location where = Location::current());
/// scale * (byte - zero_point) in f32.
Tensor dequantize(const Tensor& x, Location where = Location::current());

/// Wraps existing bytes as a quantized tensor: i8 becomes qi8, u8 becomes qu8.
Tensor quantized(const Tensor& bytes, const Operand& scale, const Operand& zero_point = 0,
                 std::optional<std::int64_t> axis = {}, Location where = Location::current());
/// The bytes of a quantized tensor, i8 or u8.
Tensor int_repr(const Tensor& x, Location where = Location::current());
Quantization quantization_of(const Tensor& x, Location where = Location::current());

/// matmul, linear and add of quantized operands return f32. These functions return quantized results, with the same
/// bits as quantizing the f32 result.
///
/// Shapes   as those of matmul, linear and add.
/// Errors   as those of quantize(); UnsupportedError for channels along an axis other than the columns of the result.
Tensor quantized_matmul(const Tensor& lhs, const Tensor& rhs, const Operand& scale, const Operand& zero_point = 0,
                        DType dtype = DType::qi8, Location where = Location::current());
Tensor quantized_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Operand& scale,
                        const Operand& zero_point = 0, DType dtype = DType::qi8, Location where = Location::current());
Tensor quantized_add(const Tensor& lhs, const Tensor& rhs, const Operand& scale, const Operand& zero_point = 0,
                     DType dtype = DType::qi8, Location where = Location::current());

// Weight-only quantization. A weight matrix in 8 or 4 bits behaves like a floating tensor of its original dtype whose
// elements are codes times scales. linear(x, w) and take(w, index), and so embedding(index, w), read the codes
// directly. x is not quantized, and its gradient is that of a product with the dequantized elements. slice() cuts it
// between blocks of 32 rows, astype() to a floating dtype changes the dtype of its values, and dequantize() returns a
// dense tensor.

struct WeightFormat {
  std::int64_t bits = 8;    // 8: one scale per row; 4: one scale per group within a row
  std::int64_t group = 32;  // with 4 bits: 32 or 64
};
/// Quantizes a matrix symmetrically, immediately. 8 bits: codes -127 to 127 with an f32 scale that maps the largest
/// magnitude of the row to 127. 4 bits: codes -8 to 7 with a bf16 scale that maps it to -8. The result has no gradient.
///
/// Shapes   weight [out, in] -> [out, in]; 4 bits pad `in` to whole groups in memory.
/// DType    f16, bf16 or f32; the result keeps it.
/// Errors   ValueError FM1350 for other bits or groups, and for weights that are not finite; ShapeError unless weight
///          is a matrix; DTypeError.
Tensor quantize_weight(const Tensor& weight, const WeightFormat& format = {}, Location where = Location::current());
/// Returns the parameters in order, with matrices quantized.
std::vector<Tensor> quantize_weights(std::span<const Tensor> parameters, const WeightFormat& format = {},
                                     Location where = Location::current());
/// Whether a tensor is a result of quantize_weight().
bool has_quantized_weights(const Tensor& x, Location where = Location::current());

}  // namespace fermata
