// Numbers of 8 bits and fewer (docs/dtypes.md): conversions that saturate, products with scales, elements in bytes.
//
// A tensor of a small dtype holds a byte for each element. Ops that move elements keep the dtype; whatever computes
// takes floats as f32 and integers as i8 or u8, and gives that. astype() rounds to nearest even; what is out of range
// becomes what the format has for it: infinity (f8e5m2), NaN (the others of 8 bits), the largest number (f4e2m1fn).
// Small dtypes have no gradient: a cast to one ends it. straight_through() rounds without ending it.
#pragma once

#include <optional>

#include "runtime/operand.h"

namespace fermata {

/// astype() where what is out of range, infinities included, becomes the largest number of the dtype.
///
/// DType    to a small or integer dtype; others as astype().
/// Source   ONNX Cast with saturate = 1.
Tensor saturating_cast(const Tensor& x, DType dtype, Location where = Location::current());

/// x with each element replaced by the nearest number of another dtype, saturating, and the gradient of x itself, as if
/// nothing had been rounded: what parameters go through that are trained for a small dtype.
///
/// DType    x floating, and so is the result, of the dtype of x; `dtype` any but bool and complex ones.
/// Errors   DTypeError FM1101.
/// Source   Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons", 2013.
Tensor straight_through(const Tensor& x, DType dtype, Location where = Location::current());

/// (lhs * lhs_scale) (rhs * rhs_scale): a matrix product of quantized operands, or of floats with quantized weights.
///
/// Where a scale is constant along the contracted axis the product is one of the stored numbers, in bytes (integers) or
/// 16 bits (else; they hold every number of 8 bits), adds up exactly or in f32, and is scaled as a whole. Else the
/// operand is multiplied by its scale first.
///
/// Shapes   lhs [..B, M, K], rhs [..B, K, N] -> [..B, M, N]. A scale is a number, or has the axes of its operand. Each
///          of its sizes divides that of the operand: 1 is one scale along the axis, the same size one each, else
///          blocks.
/// DType    operands of any small dtype, i8, u8, f16, bf16 or f32; scales floating or small floats; the result is f32,
///          or `dtype`.
/// Errors   ShapeError FM1056 for a scale that does not fit; DTypeError FM1101; those of matmul.
/// Source   PyTorch 2.11, torch._scaled_mm; JAX 0.10, jax.nn.scaled_matmul.
Tensor scaled_matmul(const Tensor& lhs, const Tensor& rhs, const Operand& lhs_scale, const Operand& rhs_scale,
                     DType dtype = DType::f32, Location where = Location::current());

/// A tensor in a small dtype with the scale that it stands for, as scaled_matmul() takes it.
struct Scaled {
  Tensor values, scale;
};
/// x / scale in a small or byte dtype, by the scale that makes the largest magnitude of each block the largest number
/// of the dtype; 1 for a block of zeros.
///
/// Shapes   `blocks` has a size for each axis of x: 0 for all of it. The scale has the sizes of x divided by them.
/// DType    x floating; scales of `scale_dtype`: f32, f16, bf16 or a small float. Of f8e8m0fnu the scale is a power of
///          two, 2^(e - m) where 2^e is that of the largest magnitude, 2^m that of the largest number: the rule of the
///          OCP Microscaling formats 1.0, in which the largest numbers of a block may saturate. Of other dtypes the
///          scale is rounded before x is divided by it.
/// Errors   ShapeError FM1056 for blocks that do not divide x; DTypeError FM1101 for a dtype that is not small or a
/// byte, and for other dtypes of scales.
Scaled quantize_blocks(const Tensor& x, DType dtype, std::initializer_list<std::int64_t> blocks,
                       Location where = Location::current());
Scaled quantize_blocks(const Tensor& x, DType dtype, std::initializer_list<std::int64_t> blocks, DType scale_dtype,
                       Location where = Location::current());

/// The elements of a dtype of 4 or 2 bits, several in a byte, the first in its lowest bits, and back.
///
/// Shapes   x [.., N] -> u8 [.., ceil(N / k)] with k = 2 or 4; what pads is 0. `size` is N.
/// Errors   DTypeError FM1101 for dtypes of 8 bits and more; ShapeError FM1056 where `size` elements are no such bytes.
Tensor pack_elements(const Tensor& x, Location where = Location::current());
Tensor unpack_elements(const Tensor& bytes, DType dtype, std::int64_t size, Location where = Location::current());

}  // namespace fermata
