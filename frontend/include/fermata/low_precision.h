// Numbers of 8 bits and fewer (docs/dtypes.md): saturating casts, scaled matrix products, and packing.
//
// A tensor of a small dtype stores one byte per element. Ops that move elements keep the dtype; arithmetic converts
// floats to f32 and integers to i8 or u8. astype() rounds to nearest even. Values out of range become infinity
// (f8e5m2), NaN (the other 8-bit formats) or the largest number (f4e2m1fn). Small dtypes have no gradient: a cast to
// one stops it. straight_through() rounds and passes the gradient on.
#pragma once

#include <optional>

#include "runtime/operand.h"

namespace fermata {

/// astype() that clamps values out of range, including infinities, to the largest number of the dtype.
///
/// DType    a small or integer dtype; others behave as in astype().
/// Source   ONNX Cast with saturate = 1.
Tensor saturating_cast(const Tensor& x, DType dtype, Location where = Location::current());

/// Rounds each element of x to the nearest number of another dtype, saturating; the gradient passes through unchanged.
/// For quantization-aware training.
///
/// DType    x floating; the result has the dtype of x. `dtype` is any but bool and complex.
/// Errors   DTypeError FM1101.
/// Source   Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons", 2013.
Tensor straight_through(const Tensor& x, DType dtype, Location where = Location::current());

/// (lhs * lhs_scale) (rhs * rhs_scale): a matrix product of quantized operands, or of floats with quantized weights.
///
/// If a scale is constant along the contracted axis, the stored numbers are multiplied directly, integers in 8 bits and
/// others in 16 bits (which represent every 8-bit number exactly). Products accumulate exactly or in f32, and the
/// result is scaled. Otherwise the operand is multiplied by its scale first.
///
/// Shapes   lhs [..B, M, K], rhs [..B, K, N] -> [..B, M, N]. A scale is a number, or has the rank of its operand. Each
///          of its sizes divides the operand's: size 1 is one scale along the axis, the same size one per element,
///          anything else one per block.
/// DType    operands of any small dtype, i8, u8, f16, bf16 or f32; scales floating or small floats; the result is f32,
///          or `dtype`.
/// Errors   ShapeError FM1056 for a scale whose shape does not match; DTypeError FM1101; those of matmul.
/// Source   PyTorch 2.11, torch._scaled_mm; JAX 0.10, jax.nn.scaled_matmul.
Tensor scaled_matmul(const Tensor& lhs, const Tensor& rhs, const Operand& lhs_scale, const Operand& rhs_scale,
                     DType dtype = DType::f32, Location where = Location::current());

/// A tensor in a small dtype and its scale, as scaled_matmul() takes them.
struct Scaled {
  Tensor values, scale;
};
/// Quantizes x in blocks: x / scale in a small or 8-bit integer dtype. The scale maps the largest magnitude of each
/// block to the largest number of the dtype; it is 1 for a block of zeros.
///
/// Shapes   `blocks` has the block size along each axis of x; 0 means the whole axis. The scale has the sizes of x
///          divided by those of the blocks.
/// DType    x floating; scales of `scale_dtype`: f32, f16, bf16 or a small float. f8e8m0fnu scales are powers of two,
///          2^(e - m), where 2^e is the power of two of the largest magnitude and 2^m that of the dtype's largest
///          number. This is the rule of the OCP Microscaling formats 1.0, under which the largest numbers of a block
///          may saturate. Other scales are rounded before x is divided by them.
/// Errors   ShapeError FM1056 for blocks that do not divide x; DTypeError FM1101 for a dtype that is neither small nor
///          an 8-bit integer, and for other scale dtypes.
Scaled quantize_blocks(const Tensor& x, DType dtype, std::initializer_list<std::int64_t> blocks,
                       Location where = Location::current());
Scaled quantize_blocks(const Tensor& x, DType dtype, std::initializer_list<std::int64_t> blocks, DType scale_dtype,
                       Location where = Location::current());

/// Packs elements of 4 or 2 bits into bytes, the first element in the lowest bits, and unpacks them.
///
/// Shapes   x [.., N] -> u8 [.., ceil(N / k)] with k = 2 or 4; padding is 0. `size` is N.
/// Errors   DTypeError FM1101 for dtypes of 8 bits and more; ShapeError FM1056 if `size` elements do not take that many
///          bytes.
Tensor pack_elements(const Tensor& x, Location where = Location::current());
Tensor unpack_elements(const Tensor& bytes, DType dtype, std::int64_t size, Location where = Location::current());

}  // namespace fermata
