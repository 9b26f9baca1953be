// Neural network functions composed of other ops. Each is recorded as its parts, which fuse and differentiate.
//
// f16 and bf16 operands are computed in f32 and rounded once; integers are converted to f32 first.
#pragma once

#include "runtime/tensor.h"

namespace fermata {

/// exp(x - max) / sum(exp(x - max)) along an axis. Elements are positive and sum to 1.
Tensor softmax(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());
/// log(softmax(x)), computed without the intermediate loss of precision.
Tensor log_softmax(const Tensor& x, std::int64_t axis = -1, Location where = Location::current());
// A call with a temporary ends its handle, as reductions do.
inline Tensor softmax(Tensor&& x, std::int64_t axis = -1, Location where = Location::current()) {
  return detail::consumed(x, softmax(std::as_const(x), axis, where));
}
inline Tensor log_softmax(Tensor&& x, std::int64_t axis = -1, Location where = Location::current()) {
  return detail::consumed(x, log_softmax(std::as_const(x), axis, where));
}

/// (x - mean) / sqrt(var + eps) over the last axis, times weight, plus bias.
///
/// Shapes   x [..N, C], weight and bias [C] or undefined -> the shape of x.
/// Source   Ba, Kiros and Hinton, "Layer normalization", 2016.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                  Location where = Location::current());
/// x / sqrt(mean(x * x) + eps) over the last axis, times weight [C] if it is defined.
///
/// Source   Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6, Location where = Location::current());

/// x times the transpose of weight, plus bias.
///
/// Shapes   x [..N, I], weight [O, I], bias [O] or undefined -> [..N, O].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Location where = Location::current());

// A call with a temporary ends its handle.
inline Tensor layer_norm(Tensor&& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                         Location where = Location::current()) {
  return detail::consumed(x, layer_norm(std::as_const(x), weight, bias, eps, where));
}
inline Tensor rms_norm(Tensor&& x, const Tensor& weight = {}, double eps = 1e-6, Location where = Location::current()) {
  return detail::consumed(x, rms_norm(std::as_const(x), weight, eps, where));
}
inline Tensor linear(Tensor&& x, const Tensor& weight, const Tensor& bias = {}, Location where = Location::current()) {
  return detail::consumed(x, linear(std::as_const(x), weight, bias, where));
}

}  // namespace fermata
