// Modules with weights of 8 or 4 bits.
#pragma once

#include "fermata/nn/attention.h"
#include "fermata/nn/layers.h"
#include "fermata/quantized.h"

namespace fermata::nn {

namespace detail {
void quantize(Tensor& weight, const WeightFormat& format, Location where);
}  // namespace detail

/// Quantizes the weights of every Linear, Embedding and MultiheadAttention in a module, at any depth; biases and all
/// other parameters are unchanged. Calls, state dicts and files work as before; quantized weights have no gradients.
///
///   fm::nn::quantize_weights(model, {.bits = 4, .group = 32});
///
/// Errors   as those of quantize_weight().
template <class M>
void quantize_weights(M& module, const WeightFormat& format = {}, Location where = Location::current()) {
  each_part<Linear, Embedding, MultiheadAttention>(module, [&]<class P>(P& part) {
    if constexpr (std::is_same_v<P, Linear> || std::is_same_v<P, Embedding>) {
      detail::quantize(part.weight, format, where);
    } else if constexpr (std::is_same_v<P, MultiheadAttention>) {
      detail::quantize(part.in_proj_weight, format, where), detail::quantize(part.out_proj.weight, format, where);
    }
  });
}

}  // namespace fermata::nn
