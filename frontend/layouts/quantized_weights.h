// Matrices of weights in 8 or 4 bits (ir/packed_weights.h): to everybody a floating tensor, whose elements are its
// codes times their scales. linear() and take() read the codes as they lie. The public half is fermata/quantized.h.
#pragma once

#include <optional>
#include <string>

#include "dispatch/op_call.h"
#include "fermata/quantized.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/packed_weights.h"
#include "runtime/tensor.h"

namespace fermata {

struct WeightPayload final : TensorPayload {
  std::string_view kind() const override { return "a tensor of quantized weights"; }
  std::string_view hint() const override { return "dequantize() returns its values"; }

  Tensor bytes;  // u8
  PackedWeights form;
};

/// Null unless the tensor has quantized weights.
const WeightPayload* weight_payload(const Tensor& x);
/// Weights over bytes that are there, with the dtype that their values have.
Tensor make_weights(const Tensor& bytes, const PackedWeights& form, DType dtype);

/// Codes times scales in f32, [rows, columns]; recorded like any other computation.
Tensor unpacked_weights(const Tensor& bytes, const PackedWeights& form, Location where);
/// Kernels of the Quantized key, where the tensor that it is about has weights.
Tensor linear_with_weights(std::span<const Tensor> x, Location where);
Tensor take_of_weights(const WeightPayload& weights, DType dtype, const Tensor& index, Location where);
Tensor view_of_weights(const Call& call, const Tensor& x, const Attributes& attributes);

/// The text of such a tensor: its values, and how they are stored.
std::string weights_to_string(const Tensor& x, Location where);
/// The key of what a file notes, before the name of the tensor.
inline constexpr std::string_view kWeightsNote = "fermata.weights:";
/// The metadata of weights in a file, and the weights from it; empty if the text or the bytes do not match.
std::string weights_note(const Tensor& weights);
std::optional<Tensor> weights_of_note(const Tensor& bytes, std::string_view note);

namespace vjp {
VjpTensor unpacked(const VjpTensor& bytes, const PackedWeights& form);
}  // namespace vjp

}  // namespace fermata
