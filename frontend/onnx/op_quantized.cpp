// Quantized operators: bytes b with a scale s and a zero point z stand for s * (b - z). Products of bytes are added up
// exactly; all else is computed in floats, which fuses.
#include <array>

#include "fermata/convolution.h"
#include "fermata/creation.h"
#include "fermata/low_precision.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/onnx/operators.h"
#include "frontend/onnx/windows.h"
#include "frontend/ops/calls.h"
#include "ir/ops/products.h"

namespace fermata::onnx {
namespace {

Tensor as(const Tensor& x, DType dtype, const NodeCall& c) { return astype(x, dtype, c.where); }

/// A scale or zero point beside x: one number, one for each position along an axis, or one for each block of that axis.
Tensor beside(const NodeCall& c, const Tensor& v, const Tensor& x, std::int64_t axis_attribute) {
  if (v.element_count() == 1) return reshape(v, Shape{}, c.where);
  const std::int64_t axis = axis_of(c, axis_attribute, x.rank());
  if (v.rank() == 1) {
    Shape sizes;
    for (unsigned i = 0; i < x.rank(); ++i) sizes.push_back(i == axis ? v.size(0) : 1);
    return reshape(v, sizes, c.where);
  }
  const std::int64_t block = c.attr("block_size", std::int64_t{0});
  if (v.rank() != x.rank() || block < 1) c.fail("the scale does not match the input");
  Shape split = v.shape(), whole = v.shape();
  Shape spread, narrow;
  for (unsigned i = 0; i < v.rank(); ++i) {
    narrow.push_back(split[i]), spread.push_back(split[i]);
    if (i == axis) narrow.push_back(1), spread.push_back(block);
  }
  whole[static_cast<std::size_t>(axis)] *= block;
  const Tensor wide = reshape(broadcast_to(reshape(v, narrow, c.where), spread, c.where), whole, c.where);
  return slice(wide, axis, 0, x.size(axis), 1, c.where);
}

Tensor dequantized(const NodeCall& c, const Tensor& x, const Tensor& scale, const Tensor& zero, std::int64_t axis) {
  const std::int64_t code = c.attr("output_dtype", std::int64_t{0});
  const DType dtype = code != 0 ? dtype_of_code(code, c.where) : arithmetic_dtype(scale.dtype());
  Tensor y = as(x, DType::f32, c);
  if (zero.defined()) y = y - as(beside(c, zero, x, axis), DType::f32, c);
  return as(y * as(beside(c, scale, x, axis), DType::f32, c), dtype, c);
}

Tensor quantized(const NodeCall& c, const Tensor& x, const Tensor& scale, const Tensor& zero, DType dtype,
                 std::int64_t axis) {
  Tensor y = as(x, DType::f32, c) / as(beside(c, scale, x, axis), DType::f32, c);
  if (is_small_float(dtype)) {  // its zero point is 0
    const bool saturates = c.attr("saturate", std::int64_t{1}) != 0;
    return saturates ? saturating_cast(y, dtype, c.where) : as(y, dtype, c);
  }
  y = round(y);
  if (zero.defined()) y = y + as(beside(c, zero, x, axis), DType::f32, c);
  return as(y, dtype, c);  // saturates
}

void dequantize_op(NodeCall& c) {
  c.give(dequantized(c, c.in(0), c.in(1), c.optional(2), c.attr("axis", std::int64_t{1})));
}
void quantize_op(NodeCall& c) {
  const Tensor zero = c.optional(2);
  const std::int64_t code = c.attr("output_dtype", std::int64_t{0});
  const DType dtype = zero.defined() ? zero.dtype() : code != 0 ? dtype_of_code(code, c.where) : DType::u8;
  c.give(quantized(c, c.in(0), c.in(1), zero, dtype, c.attr("axis", std::int64_t{1})));
}
void dynamic_quantize_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const Tensor low = minimum(min(x, {}, false, c.where), 0), high = maximum(max(x, {}, false, c.where), 0);
  const Tensor range = high - low;
  const Tensor scale = where(range == 0, 1, range / 255);
  const Tensor zero = as(clip(round(-low / scale), 0, 255), DType::u8, c);
  c.give(quantized(c, x, scale, zero, DType::u8, 1));
  c.give(scale), c.give(zero);
}

/// A zero point of rows or columns, as numbers of i32 beside the product; none where it is 0.
Tensor rows_of(const NodeCall& c, const Tensor& zero) {
  const Tensor z = as(zero, DType::i32, c);
  if (z.element_count() == 1) return reshape(z, Shape{}, c.where);
  return z.rank() == 1 ? expand_dims(z, -1, c.where) : z;
}
Tensor columns_of(const NodeCall& c, const Tensor& zero) {
  const Tensor z = as(zero, DType::i32, c);
  return z.element_count() == 1 ? reshape(z, Shape{}, c.where) : z;
}
/// (a - za) (b - zb), exactly: the products of the bytes, and what the zero points take from them.
Tensor product_of_bytes(const NodeCall& c, const Tensor& a, const Tensor& b, const Tensor& za, const Tensor& zb) {
  if (a.rank() < 2 || b.rank() < 2) {
    const auto shifted = [&](const Tensor& x, const Tensor& z, bool of_rows) {
      const Tensor wide = as(x, DType::i32, c);
      return z.defined() ? wide - (of_rows && x.rank() > 1 ? rows_of(c, z) : columns_of(c, z)) : wide;
    };
    return matmul(shifted(a, za, true), shifted(b, zb, false), c.where);
  }
  const std::array operands{a, b};
  Tensor sums = general_call<Op::matmul_i32>({}, operands, c.where);
  const auto total = [&](const Tensor& x, std::int64_t axis) {
    return as(sum(as(x, DType::i32, c), axis, true, c.where), DType::i32, c);
  };
  if (za.defined()) sums = sums - rows_of(c, za) * total(b, -2);
  if (zb.defined()) sums = sums - total(a, -1) * columns_of(c, zb);
  if (za.defined() && zb.defined())
    sums = sums + rows_of(c, za) * columns_of(c, zb) * static_cast<std::int32_t>(a.size(-1));
  return sums;
}
void matmul_integer_op(NodeCall& c) { c.give(product_of_bytes(c, c.in(0), c.in(1), c.optional(2), c.optional(3))); }

void qlinear_matmul_op(NodeCall& c) {
  const Tensor a_scale = c.in(1), b_scale = c.in(4);
  const auto row_scale = a_scale.rank() == 1 && a_scale.element_count() > 1 ? expand_dims(a_scale, -1, c.where)
                                                                            : beside(c, a_scale, c.in(0), -1);
  const Tensor sums = product_of_bytes(c, c.in(0), c.in(3), c.in(2), c.in(5));
  const Tensor scale = as(row_scale, DType::f32, c) *
                       as(b_scale.element_count() == 1 ? reshape(b_scale, Shape{}, c.where) : b_scale, DType::f32, c);
  const Tensor y = as(sums, DType::f32, c) * scale;
  c.give(quantized(c, y, c.in(6), c.in(7), c.in(7).dtype(), -1));
}

/// Sums of products of bytes stay below 2^24 where f32 adds them up exactly, else f64 does.
DType exact_sums(const Tensor& weight) {
  std::int64_t terms = 1;
  for (unsigned i = 1; i < weight.rank(); ++i) terms *= weight.shape()[i];
  return terms <= 256 ? DType::f32 : DType::f64;
}
Tensor integer_convolution(const NodeCall& c, const Tensor& x, const Tensor& w, const Tensor& zx, const Tensor& zw) {
  const DType dtype = exact_sums(w);
  Tensor a = as(x, dtype, c), b = as(w, dtype, c);
  if (zx.defined()) a = a - as(beside(c, zx, x, 0), dtype, c);
  if (zw.defined()) b = b - as(beside(c, zw, w, 0), dtype, c);
  return convolved(c, a, b, {});
}
void conv_integer_op(NodeCall& c) {
  c.give(as(integer_convolution(c, c.in(0), c.in(1), c.optional(2), c.optional(3)), DType::i32, c));
}
void qlinear_conv_op(NodeCall& c) {
  const Tensor x = c.in(0), w = c.in(3), bias = c.optional(8), w_scale = c.in(4);
  Shape channel{-1};
  for (unsigned i = 2; i < x.rank(); ++i) channel.push_back(1);
  Tensor sums = as(integer_convolution(c, x, w, c.in(2), c.in(5)), DType::f32, c);
  if (bias.defined()) sums = sums + as(reshape(bias, channel, c.where), DType::f32, c);
  const Tensor scale =
      reshape(c.in(1), Shape{}, c.where) *
      (w_scale.element_count() == 1 ? reshape(w_scale, Shape{}, c.where) : reshape(w_scale, channel, c.where));
  c.give(quantized(c, sums * scale, c.in(6), c.in(7), c.in(7).dtype(), 1));
}

constexpr std::array kRows{
    OperatorRow{"ConvInteger", &conv_integer_op},
    OperatorRow{"DequantizeLinear", &dequantize_op},
    OperatorRow{"DynamicQuantizeLinear", &dynamic_quantize_op},
    OperatorRow{"MatMulInteger", &matmul_integer_op},
    OperatorRow{"QLinearConv", &qlinear_conv_op},
    OperatorRow{"QLinearMatMul", &qlinear_matmul_op},
    OperatorRow{"QuantizeLinear", &quantize_op},
};

}  // namespace

Rows quantized_rows() { return kRows; }

}  // namespace fermata::onnx
