// Size computations for windows and convolutions.
#pragma once

#include <cstdint>
#include <span>

#include "ir/shape.h"

namespace fermata {

/// The number of windows of `size` elements, `dilation` apart, that fit `length` elements with starts `step` apart; 0
/// if none fits.
constexpr std::int64_t window_count(std::int64_t length, std::int64_t size, std::int64_t step, std::int64_t dilation) {
  std::int64_t reach = 0;
  if (size < 1 || __builtin_mul_overflow(size - 1, dilation, &reach) || reach >= length) return 0;
  return (length - 1 - reach) / step + 1;
}

/// The attributes of convolution and its gradients (ir/ops/convolution.h), by spatial axis.
struct ConvolutionAttributes {
  std::int64_t groups = 1;
  std::span<const std::int64_t> strides, padding, padding_end, dilation;

  /// From the struct of any of these ops.
  template <class O> explicit ConvolutionAttributes(const O& op)
      : groups(op.groups.value),
        strides(op.strides.value),
        padding(op.padding.value),
        padding_end(op.padding_end.value),
        dilation(op.dilation.value) {}
  std::size_t axes() const { return strides.size(); }
  /// The size of the result along spatial axis i.
  std::int64_t result_size(std::size_t i, std::int64_t x, std::int64_t weight) const {
    std::int64_t padded = 0;
    if (__builtin_add_overflow(padding[i], padding_end[i], &padded) || __builtin_add_overflow(padded, x, &padded))
      return 0;
    return window_count(padded, weight, strides[i], dilation[i]);
  }
};

}  // namespace fermata
