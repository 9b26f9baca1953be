// Convolutions on CUDA: one thread for each element of the result, or matrix products of gathered patches.
#pragma once

#include "ir/convolution.h"
#include "ir/ops/convolution.h"
#include "runtime/call_attributes.h"
#include "runtime/tensor_view.h"

namespace fermata::gpu {

/// The three tensors of a convolution, whichever of them is the result.
struct Convolution {
  TensorView x, weight, y;
};
inline Convolution tensors_of(const CallArgs& args) {
  const TensorView &a = args.inputs[0], &b = args.inputs[1], &out = args.outputs[0];
  if (args.op == Op::convolution) return {a, b, out};
  if (args.op == Op::convolution_data_gradient) return {out, b, a};
  return {a, out, b};
}
/// Those of its gradients as well.
inline ConvolutionAttributes convolution_attributes(const CallArgs& args) {
  return ConvolutionAttributes(attributes_of<ops::Convolution>(args));
}

// Predicted nanoseconds.
double convolution_direct_cost(const CallArgs& args);
double convolution_products_cost(const CallArgs& args);

}  // namespace fermata::gpu
