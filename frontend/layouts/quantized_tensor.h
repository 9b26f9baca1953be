// What a quantized tensor is made of. The public half is fermata/quantized.h.
#pragma once

#include <mutex>
#include <optional>

#include "dispatch/op_call.h"
#include "fermata/quantized.h"
#include "frontend/transforms/autograd/autograd_tape.h"

namespace fermata {

/// The right operand of products, laid out once: i8, whatever the bytes of the tensor are, and sums of its columns.
struct PackedMatrix {
  Tensor blocks;       // as matmul_packed wants them
  Tensor column_sums;  // i32 [columns]
};

/// The parts never change, so what was derived from them stays right.
struct QuantizedPayload final : TensorPayload {
  std::string_view kind() const override { return "a quantized tensor"; }
  std::string_view hint() const override { return "dequantize() returns its values, int_repr() its bytes"; }

  Tensor bytes;  // i8 or u8
  Quantization how;
  bool centered = false;  // the zero point is known to be 0 (qi8) or 128 (qu8)
  GradEdge history;       // of what was quantized where that wants a gradient: asking for it raises
  mutable std::mutex packing;
  mutable std::optional<PackedMatrix> packed[2];  // as it is, and transposed
};

/// Of Op::quantize.
struct QuantizeAttributes {
  Structure<std::int64_t> axis;  // of the channels; -1 for none
  Structure<bool> centered;      // as in QuantizedPayload
  ResultShape shape;
  ResultDType dtype;
};

/// Null unless the tensor is a quantized one.
const QuantizedPayload* quantized_payload(const Tensor& x);
/// A quantized tensor of parts that fit each other.
Tensor make_quantized(const Tensor& bytes, const Quantization& how, bool centered, const GradEdge& history);
/// The payload, or DTypeError FM1151.
const QuantizedPayload& require_quantized(std::string_view function, const Tensor& x, Location where);

/// Numbers per channel with axes of size 1, so that they broadcast along their axis of a tensor of `rank` axes.
Tensor along_channels(const Tensor& numbers, const Quantization& how, unsigned rank, Location where);
/// `value` with the history of what it was computed from, where that has one that cannot be followed.
Tensor with_nondifferentiable_history(const Tensor& value, const GradEdge& history);

/// The product in i32 of what the bytes stand for without their scales: lhs [.., M, K], and rhs [.., K, N], or
/// [N, K] where it is transposed.
Tensor integer_product(const QuantizedPayload& lhs, const QuantizedPayload& rhs, bool transposed, Location where);

/// The text of a quantized tensor: its values, and how they are stored.
std::string quantized_to_string(const Tensor& x, Location where);

/// Kernels of the Quantized key, on the CPU.
void register_quantized_kernels();

}  // namespace fermata
